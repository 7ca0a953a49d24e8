"""Queued steps are merged into one push."""

import numpy as np
import pytest

from refluid.ir.slices import Slice
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.merging import MergeQueue
from refluid.runtime.transport.wire import Rows


def variable(name, adds):
    return SlicedVariable(name, (Slice(name, name, 0, 2, (2,), "a:1"),), np.dtype(np.float32), adds=adds)


@pytest.mark.parametrize(("adds", "factor"), [(True, 3.0), (False, 1.0)])
def test_three_steps_become_one_push(adds, factor):
    w, table = variable("w", adds), variable("emb", adds)
    queue = MergeQueue(max_merged=3)
    given = [np.array([1.0, 2.0], np.float32) for _ in range(3)]
    for i, value in enumerate(given):
        queue.add([w, table], [value, Rows(np.array([i]), np.ones((1, 2), np.float32))], {"a:1": 7 + i})

    merged = queue.take()
    (_, dense), (_, rows) = merged.merged([w, table])

    assert merged.steps == 3
    assert merged.seen == {"a:1": 7}, "of the oldest step"
    assert np.allclose(dense, np.array([1, 2]) * factor)
    assert rows.rows.tolist() == [0, 1, 2]
    assert np.allclose(rows.values, factor / 3)
    assert all(np.array_equal(value, [1, 2]) for value in given), "gradients of a step are not ours to change"


@pytest.mark.parametrize(("max_merged", "taken"), [(2, [2, 1]), (None, [3]), (1, [1, 1, 1])])
def test_steps_leave_in_order_as_many_at_a_time_as_may_be_merged(max_merged, taken):
    w = variable("w", adds=True)
    queue = MergeQueue(max_merged)
    for i in range(3):
        queue.add([w], [np.full(2, 10.0**i, np.float32)], {})

    messages = [queue.take() for _ in taken]

    assert [message.steps for message in messages] == taken
    assert [str(message.values["w"][0]) for message in messages] == {
        2: ["11.0", "100.0"],
        None: ["111.0"],
        1: ["1.0", "10.0", "100.0"],
    }[max_merged]
    assert queue.steps == 0
