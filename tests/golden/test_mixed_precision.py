"""Casts are where real Fluid puts them, and the loss scaling changes as in real Fluid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import paddle.fluid as fluid
from golden.mixed_precision import HISTORIES, casts, history, models

RECORDED = json.loads((Path(__file__).parent / "data" / "mixed_precision.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", models(fluid.layers))
def test_casts_are_where_real_fluid_puts_them(name):
    assert casts(fluid, name) == RECORDED["casts"][name]


@pytest.mark.parametrize("name", HISTORIES)
def test_the_scale_changes_as_in_real_fluid(name):
    assert history(fluid, name) == RECORDED["histories"][name]
