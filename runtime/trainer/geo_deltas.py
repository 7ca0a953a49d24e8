"""GEO-SGD's arithmetic on a trainer: the delta to send, and the changes of others in what is received.

Every k steps a trainer sends its own changes, divided by the number of trainers, and receives those of the others. A
snapshot is what a trainer knows of the server: the values received last, plus its own deltas sent since. So the
server's value minus the snapshot is the work of the others.
"""

from __future__ import annotations

import numpy as np

from refluid.runtime.transport.wire import Rows


class Snapshot:
    """What one trainer knows of one parameter on the servers."""

    def __init__(self, value: np.ndarray, trainers: int):
        self._known = np.array(value)
        self._trainers = trainers

    def delta(self, value: np.ndarray) -> np.ndarray:
        """This trainer's share of its changes, to be sent now; from now on the server knows it."""
        delta = (value - self._known) / np.asarray(self._trainers, value.dtype)
        self._known += delta
        return delta

    def delta_of_rows(self, value: np.ndarray, rows: np.ndarray) -> Rows:
        """The same for some rows of a table."""
        delta = (value[rows] - self._known[rows]) / np.asarray(self._trainers, value.dtype)
        self._known[rows] += delta
        return Rows(rows, delta)

    def merge(self, value: np.ndarray, received: np.ndarray) -> np.ndarray:
        """This trainer's value plus the changes of others, which the received value includes."""
        merged = value + (received - self._known)
        self._known = np.array(received)
        return merged

    def changes(self, received: Rows) -> Rows:
        """The changes of others in some rows of a table, which the received values include."""
        changed = received.values - self._known[received.rows]
        self._known[received.rows] = received.values
        return Rows(received.rows, changed)
