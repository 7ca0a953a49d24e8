"""GEO-SGD on a server: which rows each trainer has not seen."""

import numpy as np

from refluid.ir.modes import DELTA
from refluid.runtime.server.changed_rows import ChangedRows
from refluid.runtime.server.durable.trees import from_bytes, to_buffers
from refluid.runtime.transport.wire import Rows


def test_a_trainer_gets_the_rows_that_others_changed_once():
    changed = ChangedRows(trainers=3)
    changed.mark(0, {"emb" + DELTA: Rows(np.array([4, 2, 4]), np.ones((3, 1)))})
    changed.mark(1, {"emb" + DELTA: Rows(np.array([9]), np.ones((1, 1)))})

    assert sorted(changed.take(2, "emb")) == [2, 4, 9]
    assert changed.take(0, "emb").tolist() == [9]
    assert changed.take(0, "emb").tolist() == [], "once"
    assert changed.take(0, "fc") is None


def test_a_reply_that_was_lost_is_made_again_also_after_a_restart():
    changed = ChangedRows(trainers=2)
    changed.mark(0, {"emb" + DELTA: Rows(np.array([4, 2]), np.ones((2, 1)))})
    assert sorted(changed.take(1, "emb")) == [2, 4]
    changed.mark(0, {"emb" + DELTA: Rows(np.array([7]), np.ones((1, 1)))})

    restored = ChangedRows(trainers=2)
    restored.restore(from_bytes(b"".join(to_buffers(changed.state()))))
    for each in (changed, restored):
        assert sorted(each.take(1, "emb", again=True)) == [2, 4, 7]
        assert each.take(1, "emb").tolist() == []


def test_a_trainer_that_is_added_gets_what_changes_from_then_on():
    changed = ChangedRows(trainers=2)
    changed.mark(0, {"emb" + DELTA: Rows(np.array([4]), np.ones((1, 1)))})
    assert changed.take(3, "emb").tolist() == [], "it is not known yet"
    changed.add(3)
    changed.mark(0, {"emb" + DELTA: Rows(np.array([7]), np.ones((1, 1)))})
    again = ChangedRows(trainers=2)
    again.restore(changed.state())
    for each in (changed, again):
        assert each.take(3, "emb").tolist() == [7] and sorted(each.take(1, "emb")) == [4, 7]
        each.mark(3, {"emb" + DELTA: Rows(np.array([1]), np.ones((1, 1)))})
        assert each.take(0, "emb").tolist() == [1]
