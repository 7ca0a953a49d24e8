"""GEO-SGD on a server: which rows of tables others have changed since a trainer last received them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.ir.modes import DELTA
from refluid.runtime.tables.batches import unique
from refluid.runtime.transport.wire import Rows, Value


class ChangedRows:
    """The rows of tables that have changed since each trainer last received them."""

    def __init__(self, trainers: int):
        self._trainers = trainers  # those that the job began with, and those that were added up to the last one
        self._tables: dict[str, list[_RowSet]] = {}

    def state(self) -> dict[str, Any]:
        """What a restarted server must know, as plain data and arrays."""
        return {name: [changed.state() for changed in sets] for name, sets in self._tables.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self._tables = {name: [_RowSet(**each) for each in sets] for name, sets in state.items()}
        self._trainers = max([self._trainers, *map(len, self._tables.values())])

    def add(self, trainer: int) -> None:
        """Keeps account for a trainer that comes while the job runs, and has just received whole tables."""
        self._trainers = max(self._trainers, trainer + 1)
        for sets in self._tables.values():
            sets += [_RowSet() for _ in range(self._trainers - len(sets))]

    def mark(self, trainer: int, pushed: Mapping[str, Value]) -> None:
        """Marks the rows that a trainer has pushed as changed for all others."""
        for name, value in pushed.items():
            if isinstance(value, Rows):
                sets = self._tables.setdefault(name.removesuffix(DELTA), [_RowSet() for _ in range(self._trainers)])
                rows = unique(value.rows)[0]
                for other, changed in enumerate(sets):
                    if other != trainer:
                        changed.add(rows)

    def take(self, trainer: int, name: str, *, again: bool = False) -> np.ndarray | None:
        """The changed rows of a table for a trainer, each reported once; None if it is not a table.

        ``again``: the last reply may not have arrived, so what it had is reported once more.
        """
        sets = self._tables.get(name)
        if sets is None or trainer >= len(sets):
            return None if sets is None else np.empty(0, np.int64)
        return sets[trainer].take(again=again)


class _RowSet:
    """Row numbers, each once; merged when there are many of them."""

    def __init__(self, parts: Sequence[np.ndarray] = (), taken: np.ndarray | None = None):
        self._parts = [np.array(part) for part in parts]
        self._count, self._merged = sum(map(len, self._parts)), 0
        self._taken = np.empty(0, np.int64) if taken is None else np.array(taken)  # by the last reply

    def state(self) -> dict[str, Any]:
        return {"parts": list(self._parts), "taken": self._taken}

    def add(self, rows: np.ndarray) -> None:
        """Adds rows that are different from each other, in memory that does not change."""
        self._parts.append(rows)
        self._count += len(rows)
        if self._count > 2 * self._merged + 65536:  # a trainer that does not pull must not cost more than the table
            self._parts = [_each_once(self._parts)]
            self._count = self._merged = len(self._parts[0])

    def take(self, *, again: bool) -> np.ndarray:
        self._taken = _each_once([*self._parts, self._taken] if again else self._parts)
        self._parts, self._count, self._merged = [], 0, 0
        return self._taken


def _each_once(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all parts; no part has a row twice."""
    if len(parts) == 1:
        return parts[0]
    return unique(np.concatenate([np.empty(0, np.int64), *parts]))[0]
