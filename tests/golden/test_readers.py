"""Readers deliver the batches that those of real Fluid deliver, and programs that read have its operators and names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import paddle.fluid as fluid
from golden.readers import LOADERS, PROGRAMS, RECORDED, loaded, read

EXPECTED = json.loads(Path(RECORDED).read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", LOADERS)
def test_a_loader_yields_what_that_of_real_fluid_yields(case):
    assert loaded(fluid, case) == EXPECTED["loaders"][case]


@pytest.mark.parametrize("case", PROGRAMS)
def test_a_program_reads_what_that_of_real_fluid_reads(case):
    found = read(fluid, case)
    for buffers, expected in EXPECTED["programs"][case].items():
        for what, value in expected.items():
            assert found[buffers][what] == value, f"{buffers} buffer: {what}"
