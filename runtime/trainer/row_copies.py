"""GEO training with tables that grow: a trainer holds copies of the rows that it uses, and trains them by itself.

Rows that it lacks are looked up on the servers, once. When copies take more than the table's `trainer_budget`, those
that were used longest ago are given up. Their changes are sent before that, so a row that comes back is what servers
have.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from refluid.ir.modes import DELTA
from refluid.runtime.tables.batches import spread, unique
from refluid.runtime.tables.copies import Copies
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.packing import Replies, pack
from refluid.runtime.trainer.row_requests import request_rows
from refluid.runtime.transport.wire import Rows

if TYPE_CHECKING:
    from refluid.runtime.trainer.server_calls import ServerCalls

_SPARE = 16  # one of so many rows of the budget is kept free when rows are given up


@dataclass
class _Held:
    """The copies of one table."""

    table: SlicedVariable
    budget: int  # bytes; 0 for any
    copies: Copies = field(init=False)
    touched: list[np.ndarray] = field(default_factory=list)  # ids that were trained since their changes were sent

    def __post_init__(self) -> None:
        self.copies = Copies(self.table.name, math.prod(self.table.shape[1:]), self.table.dtype)
        self.most_rows = self.budget // self.copies.row_bytes if self.budget else None

    def changes(self, trainers: int) -> Rows:
        """This trainer's share of what it has changed, to be sent now."""
        touched, self.touched = self.touched, []
        ids = unique(np.concatenate(touched))[0] if touched else np.empty(0, np.int64)
        changes = self.copies.take_changes(ids, trainers, self.table.wire)
        return Rows(ids, changes.reshape(len(ids), *self.table.shape[1:]))


class RowCopies:
    """The copies that a trainer holds, of all tables that grow. Threads that train take turns."""

    def __init__(self, session: ServerCalls):
        self._session, self._held = session, dict[str, _Held]()
        self.lock = threading.RLock()  # held by whoever pushes, too

    def hold(self, table: SlicedVariable, budget: int) -> None:
        """Holds copies of rows of a table from now on, in so many bytes."""
        with self.lock:
            if table.name not in self._held:
                self._held[table.name] = _Held(table, budget)

    def __contains__(self, table: str) -> bool:
        return table in self._held

    def count(self, table: str) -> int:
        """How many rows of a table there are copies of."""
        return len(self._held[table].copies)

    def look_up(self, ids: Mapping[str, np.ndarray], *, keeps: bool = True) -> dict[str, np.ndarray]:
        """The rows of tables for some ids, in their order: copies where there are any, and what servers have.

        Args:
          keeps: whether there are copies of the latter from now on; without it, nothing changes.
        """
        with self.lock:
            different = {name: unique(np.asarray(each, np.int64)) for name, each in ids.items()}
            wanted = {name: found for name, (found, _) in different.items()}
            received = self._fetch(wanted, keeps=keeps)
            return {name: spread(self._read(name, wanted[name], *received[name]), different[name][1]) for name in ids}

    def train(self, table: str, grads: Rows, rate: float) -> None:
        """A step of SGD on copies."""
        with self.lock:
            held = self._held[table]
            self._fetch({table: grads.rows}, keeps=True)  # those of rows that were given up meanwhile
            flat = grads.values.reshape(len(grads.rows), held.copies.form.width)
            held.copies.train(grads.rows, flat.astype(held.copies.form.dtype, copy=False), rate)
            held.touched.append(grads.rows)

    def changes(self) -> list[tuple[SlicedVariable, Rows]]:
        """This trainer's share of the changes of all copies, to be sent now."""
        with self.lock:
            return [(held.table, held.changes(self._session.job.trainers)) for held in self._held.values()]

    def receive(self, replies: Replies) -> None:
        """Adds the work of others, which the rows in replies include."""
        with self.lock:
            for held in self._held.values():
                received = [replies[part.endpoint].get(part.name) for part in held.table.slices]
                for rows in (each for each in received if isinstance(each, Rows)):
                    held.copies.receive(rows.rows, rows.values.reshape(len(rows.rows), held.copies.form.width))

    # With the lock held

    def _fetch(self, wanted: Mapping[str, np.ndarray], *, keeps: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Ids that there are no copies of, and the rows that servers have of them; on request, these are copied."""
        if keeps and not all(self._has_room(name, ids) for name, ids in wanted.items()):
            self._make_room(wanted)
        missing = {name: self._held[name].copies.missing(ids) for name, ids in wanted.items()}
        asked = {name: (self._held[name].table, ids) for name, ids in missing.items() if len(ids)}
        received = request_rows(self._session, asked) if asked else {}
        found = {}
        for name, ids in missing.items():
            copies = self._held[name].copies
            rows = received.get(name, np.empty((0, copies.form.width), copies.form.dtype))
            found[name] = ids, rows.reshape(len(ids), copies.form.width)
            if keeps and len(ids):
                copies.add(*found[name])
        return found

    def _read(self, name: str, ids: np.ndarray, missing: np.ndarray, received: np.ndarray) -> np.ndarray:
        held = self._held[name]
        rows = held.copies.read(ids, creates=False)
        if len(missing):
            order = np.argsort(ids)
            rows[order[np.searchsorted(ids, missing, sorter=order)]] = received
        return rows.reshape(len(ids), *held.table.shape[1:])

    def _has_room(self, name: str, ids: np.ndarray) -> bool:
        held = self._held[name]
        if held.most_rows is None or len(held.copies) + len(ids) <= held.most_rows:
            return True
        if len(ids) > held.most_rows:
            raise ValueError(
                f"trainer {self._session.job.trainer} uses {len(ids)} rows of table {name} in one step, and its "
                f"trainer_budget of {held.budget} bytes is enough for {held.most_rows}: raise it with "
                "refluid.table_options, or use smaller batches"
            )
        return len(held.copies) + len(held.copies.missing(ids)) <= held.most_rows

    def _make_room(self, wanted: Mapping[str, np.ndarray]) -> None:
        """Sends all changes, then gives up the copies that were used longest ago."""
        self._session.push(pack(self.changes(), suffix=DELTA), steps=0)
        for name, ids in wanted.items():
            held = self._held[name]
            if held.most_rows is not None:
                left = max(0, held.most_rows - held.most_rows // _SPARE - len(ids))
                held.copies.evict_oldest(max(0, len(held.copies) - left))
