"""GEO-SGD's arithmetic on a trainer: the delta to send, and the changes of others in what is received.

Every k steps a trainer sends its own changes, divided by the number of trainers, and receives those of the others. A
snapshot is what a trainer knows of the server: the values received last, plus its own deltas sent since. So the
server's value minus the snapshot is the work of the others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refluid.runtime.tables.kernels import known as kernels
from refluid.runtime.transport.wire import Rows

_OWN: dict[np.dtype, Any] = {
    np.dtype(np.float32): kernels.own_changes32,
    np.dtype(np.float64): kernels.own_changes64,
}
_OTHERS: dict[np.dtype, Any] = {
    np.dtype(np.float32): kernels.others_changes32,
    np.dtype(np.float64): kernels.others_changes64,
}


class Snapshot:
    """What one trainer knows of one parameter on the servers."""

    def __init__(self, value: np.ndarray, trainers: int):
        self._known = np.array(value, order="C")
        self._trainers = trainers

    def delta(self, value: np.ndarray) -> np.ndarray:
        """This trainer's share of its changes, to be sent now; from now on the server knows it."""
        delta = (value - self._known) / np.asarray(self._trainers, value.dtype)
        self._known += delta
        return delta

    def delta_of_rows(self, value: np.ndarray, rows: np.ndarray) -> Rows:
        """The same for some rows of a table."""
        if value.dtype not in _OWN:
            delta = (value[rows] - self._known[rows]) / np.asarray(self._trainers, value.dtype)
            self._known[rows] += delta
            return Rows(rows, delta)
        delta = np.empty((len(rows), *value.shape[1:]), value.dtype)
        _OWN[value.dtype](_matrix(value), _matrix(self._known), rows, self._trainers, _matrix(delta))
        return Rows(rows, delta)

    def merge(self, value: np.ndarray, received: np.ndarray) -> np.ndarray:
        """This trainer's value plus the changes of others, which the received value includes."""
        merged = value + (received - self._known)
        self._known = np.array(received)
        return merged

    def changes(self, received: Rows) -> Rows:
        """The changes of others in some rows of a table, which the received values include."""
        rows, values, known = received.rows, received.values, self._known
        if len(rows) and (rows.min() < 0 or rows.max() >= len(known)):
            raise ValueError(f"a server has sent row {rows.max()} of a table of {len(known)} rows")
        if known.dtype not in _OTHERS:
            changed = values - known[rows]
            known[rows] = values
            return Rows(rows, changed)
        changed = np.empty((len(rows), *known.shape[1:]), known.dtype)
        _OTHERS[known.dtype](_matrix(values.astype(known.dtype, copy=False)), _matrix(known), rows, _matrix(changed))
        return Rows(rows, changed)


def _matrix(rows: np.ndarray) -> np.ndarray:
    """Rows as a matrix, in the same memory."""
    return np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
