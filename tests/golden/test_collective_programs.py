"""Programs of collective training have the operators, the order and the attributes that real Fluid gives them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import paddle.fluid as fluid
from golden.collective_programs import CASES, shorten

RECORDED = json.loads((Path(__file__).parent / "data" / "collective_programs.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_programs_are_like_those_of_real_fluid(case):
    assert shorten(fluid, case) == RECORDED[case]
