"""Steps that wait for the sender are merged."""

import numpy as np
import pytest

from refluid.runtime.trainer.exchange_plan import Sliced
from refluid.runtime.trainer.merging import Waiting
from refluid.runtime.transport.wire import Rows


def variable(name, adds):
    return Sliced(name, (), np.dtype(np.float32), (2,), adds=adds)


@pytest.mark.parametrize(("adds", "factor"), [(True, 3.0), (False, 1.0)])
def test_three_steps_become_one_push(adds, factor):
    w, table = variable("w", adds), variable("emb", adds)
    waiting = Waiting(most=5, most_merged=3)
    given = [np.array([1.0, 2.0], np.float32) for _ in range(3)]
    for i, value in enumerate(given):
        waiting.add([w, table], [value, Rows(np.array([i]), np.ones((1, 2), np.float32))])

    batch = waiting.take()
    (_, dense), (_, rows) = batch.merged([w, table])

    assert batch.steps == 3
    assert np.allclose(dense, np.array([1, 2]) * factor)
    assert rows.rows.tolist() == [0, 1, 2]
    assert np.allclose(rows.values, factor / 3)
    assert all(np.array_equal(value, [1, 2]) for value in given), "gradients of a step are not ours to change"


def test_waiting_steps_are_bounded_and_leave_in_order():
    w = variable("w", adds=True)
    waiting = Waiting(most=3, most_merged=2)
    for i in range(3):
        assert not waiting.full
        waiting.add([w], [np.full(2, float(i), np.float32)])

    assert waiting.full
    assert waiting.take().steps == 2
    last = waiting.take()
    assert last.steps == 1
    assert last.values["w"].tolist() == [2.0, 2.0]
    assert waiting.steps == 0
