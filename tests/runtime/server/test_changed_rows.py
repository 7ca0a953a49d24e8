"""GEO-SGD on a server: which rows each trainer has not seen."""

import numpy as np

from refluid.ir.modes import DELTA
from refluid.runtime.server.changed_rows import ChangedRows
from refluid.runtime.transport.wire import Rows


def test_a_trainer_gets_the_rows_that_others_changed_once():
    changed = ChangedRows(trainers=3)
    changed.mark(0, {"emb" + DELTA: Rows(np.array([4, 2, 4]), np.ones((3, 1)))})
    changed.mark(1, {"emb" + DELTA: Rows(np.array([9]), np.ones((1, 1)))})

    assert changed.take(2, "emb").tolist() == [2, 4, 9]
    assert changed.take(0, "emb").tolist() == [9]
    assert changed.take(0, "emb").tolist() == [], "once"
    assert changed.take(0, "fc") is None
