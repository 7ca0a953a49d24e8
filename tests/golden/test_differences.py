"""Deliberate differences from real Fluid: what must hold does so here, not there, and the guide lists all of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from golden.differences import DATA, DIFFERENCES, run_in_fresh_world

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guides/differences.md"


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA) as data:
        return {key: data[key] for key in data.files}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_must_hold_does_so_here_and_not_in_real_fluid(name, recorded):
    proof = DIFFERENCES[name]
    theirs = {key.partition("/")[2]: value for key, value in recorded.items() if key.startswith(f"{name}/")}
    assert not proof.holds(theirs)
    assert proof.holds(run_in_fresh_world(fluid, name))


def test_the_guide_lists_every_difference_and_no_other():
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(DIFFERENCES)


def test_every_difference_is_named_where_it_is_made_and_every_name_has_a_proof():
    sources = [
        path for folder in ("src", "transpiler", "runtime", "tests/golden") for path in (ROOT / folder).rglob("*.py")
    ]
    marks = [
        name
        for path in sources
        if path.name not in ("differences.py", "test_differences.py")
        for names in re.findall(r"differs: ([a-z0-9, -]+)", path.read_text(encoding="utf-8"))
        for name in re.split(r",\s*", names.strip())
    ]
    assert sorted(set(marks)) == sorted(DIFFERENCES)
