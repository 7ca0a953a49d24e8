"""GEO-SGD's arithmetic: nobody's work is lost, and nobody's counts twice."""

import numpy as np
import pytest

from refluid.runtime.trainer.geo_deltas import Snapshot
from refluid.runtime.transport.wire import Rows


def test_one_trainer_keeps_what_it_has_learned():
    start = np.zeros(3, np.float32)
    snapshot, server = Snapshot(start, trainers=1), start.copy()
    value = np.array([1, 2, 3], np.float32)

    server += snapshot.delta(value)
    value = snapshot.merge(value, server)

    assert np.array_equal(server, [1, 2, 3])
    assert np.array_equal(value, [1, 2, 3])


def test_two_trainers_get_each_others_changes_and_not_their_own_again():
    start = np.zeros(1, np.float64)
    server = start.copy()
    snapshots = [Snapshot(start, trainers=2) for _ in range(2)]
    values = [start + 2.0, start + 4.0]  # what each has learned

    for trainer in range(2):
        server += snapshots[trainer].delta(values[trainer])
        values[trainer] = snapshots[trainer].merge(values[trainer], server)
    assert np.array_equal(server, [3.0]), "the mean of both"
    values[0] = snapshots[0].merge(values[0], server + 0 * snapshots[0].delta(values[0]))

    assert np.array_equal(values[1], [4.0 + 1.0]), "its own, and trainer 0's share"


def test_rows_of_a_table_are_traded_alone():
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    snapshot = Snapshot(table, trainers=2)
    learned = table.copy()
    learned[[1, 3]] += 2

    sent = snapshot.delta_of_rows(learned, np.array([1, 3]))

    assert np.array_equal(sent.values, np.ones((2, 2)))
    received = Rows(np.array([2, 3]), np.stack([table[2] + 5, table[3] + 1 + 7]))
    assert np.array_equal(snapshot.changes(received).values, [[5, 5], [7, 7]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_of_any_dtype_follow_whole_parameters(dtype):
    rng = np.random.default_rng(3)
    start = rng.normal(size=(6, 2, 2)).astype(dtype)
    learned, server, rows = start.copy(), start.copy(), np.array([0, 4])
    learned[rows] += 1
    whole, by_rows = Snapshot(start, trainers=2), Snapshot(start, trainers=2)

    expected = whole.delta(learned)
    sent = by_rows.delta_of_rows(learned, rows)

    assert np.array_equal(sent.values, expected[rows])
    server += expected
    server[[1, 4]] += 3
    others = by_rows.changes(Rows(np.array([1, 4]), server[[1, 4]]))
    assert np.array_equal(learned[[1, 4]] + others.values, whole.merge(learned, server)[[1, 4]])
    assert not by_rows.changes(Rows(np.array([1, 4]), server[[1, 4]])).values.any(), "known by now"


def test_rows_that_a_table_does_not_have_are_refused():
    snapshot = Snapshot(np.zeros((4, 2), np.float32), trainers=2)
    with pytest.raises(ValueError, match="a server has sent row 4 of a table of 4 rows"):
        snapshot.changes(Rows(np.array([1, 4]), np.zeros((2, 2), np.float32)))
