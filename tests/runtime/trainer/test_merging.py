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
    queue = MergeQueue(capacity=5, max_merged=3)
    given = [np.array([1.0, 2.0], np.float32) for _ in range(3)]
    for i, value in enumerate(given):
        queue.add([w, table], [value, Rows(np.array([i]), np.ones((1, 2), np.float32))])

    merged = queue.take()
    (_, dense), (_, rows) = merged.merged([w, table])

    assert merged.steps == 3
    assert np.allclose(dense, np.array([1, 2]) * factor)
    assert rows.rows.tolist() == [0, 1, 2]
    assert np.allclose(rows.values, factor / 3)
    assert all(np.array_equal(value, [1, 2]) for value in given), "gradients of a step are not ours to change"


def test_queue_steps_are_bounded_and_leave_in_order():
    w = variable("w", adds=True)
    queue = MergeQueue(capacity=3, max_merged=2)
    for i in range(3):
        assert not queue.full
        queue.add([w], [np.full(2, float(i), np.float32)])

    assert queue.full
    assert queue.take().steps == 2
    last = queue.take()
    assert last.steps == 1
    assert last.values["w"].tolist() == [2.0, 2.0]
    assert queue.steps == 0
