"""GEO-SGD's arithmetic: nobody's work is lost, and nobody's counts twice."""

import numpy as np
import pytest

from refluid.runtime.trainer.geo_deltas import Average, Snapshot, missing_shares
from refluid.runtime.transport.wire import Rows


def test_one_trainer_keeps_what_it_has_learned():
    start = np.zeros(3, np.float32)
    snapshot, server = Snapshot(start), start.copy()
    value = np.array([1, 2, 3], np.float32)

    server += snapshot.delta(value, trainers=1)
    value = snapshot.merge(value, server)

    assert np.array_equal(server, [1, 2, 3])
    assert np.array_equal(value, [1, 2, 3])


def test_two_trainers_get_each_others_changes_and_not_their_own_again():
    start = np.zeros(1, np.float64)
    server = start.copy()
    snapshots = [Snapshot(start) for _ in range(2)]
    values = [start + 2.0, start + 4.0]  # what each has learned

    for trainer in range(2):
        server += snapshots[trainer].delta(values[trainer], 2)
        values[trainer] = snapshots[trainer].merge(values[trainer], server)
    assert np.array_equal(server, [3.0]), "the mean of both"
    values[0] = snapshots[0].merge(values[0], server + 0 * snapshots[0].delta(values[0], 2))

    assert np.array_equal(values[1], [4.0 + 1.0]), "its own, and trainer 0's share"


def test_rows_of_a_table_are_traded_alone():
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    snapshot = Snapshot(table)
    learned = table.copy()
    learned[[1, 3]] += 2

    sent = snapshot.delta_of_rows(learned, np.array([1, 3]), trainers=2)

    assert np.array_equal(sent.values, np.ones((2, 2)))
    received = Rows(np.array([2, 3]), np.stack([table[2] + 5, table[3] + 1 + 7]))
    assert np.array_equal(snapshot.changes(received).values, [[5, 5], [7, 7]])


def test_dense_programs_average_what_two_trainers_have_learned():
    server = np.zeros(1)
    first, second = Average(server), Average(server)

    server = server + first.delta(np.array([2.0]), trainers=2)
    own = first.merge(np.array([2.0]), server, missing=1.0)
    assert own.tolist() == [2.0], "the other has pushed nothing yet: its own stands for both"
    server = server + second.delta(np.array([4.0]), trainers=2)
    assert server.tolist() == [3.0]
    assert second.merge(np.array([4.0]), server, missing=0.0).tolist() == [3.0]

    server = server + first.delta(own + 1.0, trainers=2)
    assert server.tolist() == [3.5], "the mean of 3 and 4"
    own = first.merge(own + 1.0, server, missing=0.0)
    assert own.tolist() == [3.5]
    server = server + second.delta(np.array([3.0]), trainers=2)
    assert server.tolist() == [3.0], "the mean of 3 and 3"


def test_only_changes_count_once_other_trainers_take_part():
    value, server = Average(np.zeros(1)), np.array([5.0])  # what others have left behind
    own = value.merge(np.array([0.0]), server, missing=0.0)
    value.begin_again(own)
    assert value.delta(own + 2.0, trainers=1).tolist() == [2.0]


def test_an_average_goes_on_after_a_push_without_a_reply():
    value = Average(np.zeros(1))
    server = value.delta(np.array([2.0]), trainers=2) + value.delta(np.array([6.0]), trainers=2)
    assert server.tolist() == [3.0]
    assert value.merge(np.array([6.0]), server, missing=1.0).tolist() == [6.0]


@pytest.mark.parametrize(
    ("own", "other", "others", "missing"),
    [(20, 0, 1, 1.0), (20, 20, 1, 0.0), (20, 30, 1, 0.0), (20, 10, 1, 0.5), (20, 20, 2, 0.5), (20, 0, 0, 0.0)],
)
def test_shares_are_missing_as_long_as_others_have_taken_fewer_steps(own, other, others, missing):
    assert missing_shares(own, other, others) == missing
