"""Copies of rows: those that a trainer of GEO mode holds of a table that grows, and trains by itself.

Beside its weights, a copy keeps its original, the row on a server, as it is known: as received last, plus the changes
sent since. What the copy differs by is the work to be sent; what a received original differs by is the work of others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refluid.runtime.tables.kernels import copies
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Rule
from refluid.runtime.tables.table import Table

_KNOWN = "Known"
_KERNELS = {
    np.dtype(np.float32): (copies.changes32, copies.sent32, copies.received32),
    np.dtype(np.float64): (copies.changes64, copies.sent64, copies.received64),
}


class Copies(Table):
    """Copies of some rows of a table, trained with SGD."""

    def __init__(self, name: str, width: int, dtype: np.dtype):
        super().__init__(name, RecordForm(width, dtype, (_KNOWN,)), Rule("sgd", {}))
        self._changes, self._sent, self._received = _KERNELS[self.form.dtype]

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Those of some ids, all different, that there is no copy of."""
        found = []
        for segment, _, chosen in self._parts(ids):
            missing = np.empty(len(chosen), np.int64)
            with segment.lock:
                found.append(missing[: copies.find_missing(segment.control, chosen, missing)])
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def add(self, ids: np.ndarray, originals: np.ndarray) -> None:
        """Adds copies of rows as they have just been received."""
        used = np.full(len(ids), self.step, np.int64), np.zeros(len(ids), np.float32)
        self.put(ids, self.form.packed(ids, originals, {_KNOWN: originals}, used))

    def train(self, ids: np.ndarray, grads: np.ndarray, rate: float) -> None:
        """A step of SGD; ids are different from each other, and there are copies of all."""
        self.update(ids, grads, self.begin_step(rate))

    def take_changes(self, ids: np.ndarray, divisor: int, wire: Any = None) -> np.ndarray:
        """What copies have changed by and was not sent, divided and as precise as it travels; it counts as sent."""
        changes = np.empty((len(ids), self.form.width), self.form.dtype)
        for segment, places, chosen in self._parts(ids):
            with segment.lock:
                self._changes(segment.control, chosen, places, divisor, changes)
        if wire is not None:
            changes = changes.astype(wire).astype(self.form.dtype)
        for segment, places, chosen in self._parts(ids):
            with segment.lock:
                self._sent(segment.control, chosen, places, changes)
        return changes

    def receive(self, ids: np.ndarray, originals: np.ndarray) -> None:
        """Adds the work of others to copies; rows that there is no copy of are left out."""
        originals = np.ascontiguousarray(originals, self.form.dtype)
        for segment, places, chosen in self._parts(np.ascontiguousarray(ids)):
            with segment.lock:
                self._received(segment.control, chosen, places, originals)
