"""GEO-SGD: trainers train on their own and trade differences.

Every k steps a trainer sends what it changed since it last knew, divided by the number of trainers, and receives what
the others have changed meanwhile. A snapshot is what a trainer knows of the server: the last values received, plus its
own differences sent since. So the server's value minus the snapshot is the work of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refluid.runtime.transport.wire import Rows, Value

DELTA = ".delta"  # a parameter's difference, as servers call it


class Snapshot:
    """What one trainer knows of one parameter on the servers."""

    def __init__(self, value: np.ndarray, trainers: int):
        self._known = np.array(value)
        self._trainers = trainers

    def difference(self, value: np.ndarray) -> np.ndarray:
        """The share of this trainer's changes that is sent now; it is known to the server from now on."""
        delta = (value - self._known) / np.asarray(self._trainers, value.dtype)
        self._known += delta
        return delta

    def difference_of_rows(self, value: np.ndarray, rows: np.ndarray) -> Rows:
        """The same for some rows of a table."""
        delta = (value[rows] - self._known[rows]) / np.asarray(self._trainers, value.dtype)
        self._known[rows] += delta
        return Rows(rows, delta)

    def merge(self, value: np.ndarray, received: np.ndarray) -> np.ndarray:
        """This trainer's value with the changes of others, which the received value shows."""
        merged = value + (received - self._known)
        self._known = np.array(received)
        return merged

    def changes(self, received: Rows) -> Rows:
        """What others have changed in some rows of a table, which the received values show."""
        changed = received.values - self._known[received.rows]
        self._known[received.rows] = received.values
        return Rows(received.rows, changed)


class ChangedRows:
    """Which rows of tables have changed since each trainer last received them; for servers."""

    def __init__(self, trainers: int):
        self._trainers = trainers
        self._tables: dict[str, list[_RowSet]] = {}

    def mark(self, trainer: int, pushed: Mapping[str, Value]) -> None:
        """Rows that a trainer has pushed are news for the others."""
        for name, value in pushed.items():
            if isinstance(value, Rows):
                sets = self._tables.setdefault(name.removesuffix(DELTA), [_RowSet() for _ in range(self._trainers)])
                for other, changed in enumerate(sets):
                    if other != trainer:
                        changed.add(value.rows)

    def take(self, trainer: int, name: str) -> np.ndarray | None:
        """The rows of a table that are news for a trainer, once; None for what is no table."""
        sets = self._tables.get(name)
        return None if sets is None else sets[trainer].take()


class _RowSet:
    """Row numbers, each once; merged when there are many of them."""

    def __init__(self):
        self._parts: list[np.ndarray] = []
        self._count = 0
        self._merged = 0

    def add(self, rows: Any) -> None:
        self._parts.append(np.array(rows))
        self._count += len(rows)
        if self._count > 2 * self._merged + 65536:  # a trainer that does not pull must not cost more than the table
            self._parts = [np.unique(np.concatenate(self._parts))]
            self._count = self._merged = len(self._parts[0])

    def take(self) -> np.ndarray:
        rows = np.unique(np.concatenate(self._parts)) if self._parts else np.empty(0, np.int64)
        self._parts, self._count, self._merged = [], 0, 0
        return rows
