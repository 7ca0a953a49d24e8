"""Packing: what is cut into slices is joined again, dense or sparse, and one message goes to each server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refluid.ops.core.values import SelectedRows
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.packing import Message, Pulls, cut, join, pack, to_host
from refluid.runtime.transport.wire import Rows
from refluid.transpiler.slices import count_slices, slice_variable

SHAPES = st.lists(st.integers(1, 40), min_size=1, max_size=3)


def variable(shape, slices, servers=2, dtype=np.int64):
    parts = slice_variable("w", shape, slices)
    placed = tuple(replace(part, endpoint=f"s{i % servers}") for i, part in enumerate(parts))
    return SlicedVariable("w", placed, np.dtype(dtype))


def replies(pieces):
    found = {}
    for endpoint, name, value in pieces:
        found.setdefault(endpoint, {})[name] = value
    return found


@given(SHAPES, st.integers(1, 9), st.integers(1, 100), st.randoms(use_true_random=False))
def test_joining_undoes_cutting_in_any_order(shape, servers, least, random):
    sliced = variable(shape, count_slices(shape, servers, least), servers)
    array = np.arange(np.prod(shape)).reshape(shape)
    pieces = cut(sliced, array)
    assert [value.shape for _, _, value in pieces] == [part.shape for part in sliced.slices]
    slices = list(sliced.slices)
    random.shuffle(slices)
    random.shuffle(pieces)
    np.testing.assert_array_equal(join(replace(sliced, slices=tuple(slices)), replies(pieces)), array)


def test_dense_slices_are_views():
    array = np.zeros((6, 2))
    assert all(np.shares_memory(value, array) for _, _, value in cut(variable((6, 2), 3), array))


@given(st.lists(st.integers(0, 19), max_size=30), st.integers(1, 5))
def test_every_selected_row_goes_to_the_slice_that_holds_it(rows, slices):
    sliced = variable((20, 1), slices)
    rows = np.array(rows, np.int64)
    found = []
    for (_, _, value), part in zip(cut(sliced, Rows(rows, rows[:, None])), sliced.slices, strict=True):
        assert ((value.rows >= 0) & (value.rows < part.rows)).all()
        np.testing.assert_array_equal(value.rows + part.start, value.values[:, 0])
        found += value.values[:, 0].tolist()
    assert sorted(found) == sorted(rows.tolist())


def test_slices_must_hold_every_row_once():
    first, second = slice_variable("w", (4, 2), 2)
    with pytest.raises(ValueError, match="w.block1 holds rows 2 to 4 of w, row 0 is next"):
        SlicedVariable("w", (second,), np.dtype(np.float32))
    with pytest.raises(ValueError, match="the slices of w end at row 2 of 4"):
        SlicedVariable("w", (first,), np.dtype(np.float32))


def test_one_message_goes_to_each_server_that_is_pushed_to_or_pulled_from():
    pushed = variable((4, 2), 2)
    pulled = replace(pushed, slices=tuple(replace(part, endpoint="s2") for part in pushed.slices))
    messages = pack([(pushed, np.arange(8).reshape(4, 2))], Pulls.of([pulled]), ".delta")
    assert list(messages) == ["s0", "s1", "s2"]
    assert {name: value.tolist() for name, value in messages["s1"].pushed.items()} == {
        "w.block1.delta": [[4, 5], [6, 7]]
    }
    assert messages["s2"] == Message({}, ["w.block0", "w.block1"], 8 * 8)


def test_entries_that_hold_no_row_are_not_sent():
    rows = SelectedRows(np.array([1, 9, 3]), np.array([[1.0], [9.0], [3.0]]), 9)
    (sent,) = to_host([variable((9, 1), 1)], {"w": rows})
    assert (sent.rows.tolist(), sent.values.tolist()) == ([1, 3], [[1.0], [3.0]])


def test_padding_adds_rows_that_no_table_has():
    rows, values = Rows(np.array([3, 1]), np.ones((2, 2), np.float32)).padded(height=5, size=4)
    assert rows.tolist() == [3, 1, 5, 5]
    assert values.tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]
