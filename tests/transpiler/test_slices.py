"""Slices of rows: balanced, and described by text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refluid.ir.slices import Slice
from refluid.transpiler.slices import count_slices, cut_rows, slice_variable

SHAPES = st.lists(st.integers(1, 40), min_size=1, max_size=3)


@given(SHAPES, st.integers(1, 9), st.integers(1, 100))
def test_slices_are_balanced_and_not_too_small(shape, servers, least):
    count = count_slices(shape, servers, least)
    sizes = [end - start for start, end in cut_rows(shape[0], count)]
    assert count <= servers
    assert max(sizes) - min(sizes) <= 1
    assert count == 1 or np.prod(shape) / count >= least


@given(st.text(st.characters(codec="utf-8", exclude_characters="|"), min_size=1), SHAPES, st.integers(1, 5))
def test_a_slice_is_what_its_text_says(name, shape, parts):
    for piece in slice_variable(name, shape, min(parts, shape[0])):
        assert Slice.parse(str(piece)) == piece


@pytest.mark.parametrize(
    ("shape", "servers", "count"),
    [  # as real Fluid decides with slices of at least 8192 elements
        ((1000, 20), 2, 2),
        ((1000, 20), 3, 2),
        ((1000, 30), 3, 3),
        ((10, 5000), 4, 4),
        ((3, 50000), 4, 3),
        ((4096, 4), 2, 2),
        ((2048, 4), 2, 1),
        ((13, 1000), 2, 1),
    ],
)
def test_there_are_as_many_slices_as_in_fluid(shape, servers, count):
    assert count_slices(shape, servers, 8192) == count


def test_a_variable_in_one_piece_keeps_its_name():
    assert [piece.name for piece in slice_variable("w", (4, 2), 1)] == ["w"]
    assert [str(piece) for piece in slice_variable("w", (5, 2), 2)] == ["w.block0|w|0|2|5,2", "w.block1|w|2|5|5,2"]
