"""Requests for rows of tables that live on servers: one to each server, for any number of tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from refluid.runtime.tables.batches import spread, unique
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.packing import Message, Replies
from refluid.runtime.trainer.server_calls import ROWS, ServerCalls
from refluid.runtime.transport.wire import dense

Ids = Mapping[str, np.ndarray]  # of rows, by table
Wanted = Mapping[str, tuple[SlicedVariable, np.ndarray]]  # a table, and ids of its rows, which are valid, by name


class RowRequest:
    """The rows of tables for some ids: what to ask each server for, each row once, and how replies become rows."""

    def __init__(self, wanted: Wanted):
        self._wanted = {name: (table, *unique(np.asarray(ids, np.int64))) for name, (table, ids) in wanted.items()}
        self._inside: dict[str, np.ndarray] = {}  # by slice: the places of its rows among those of the table
        self.numbers: dict[str, dict[str, np.ndarray]] = {}  # by endpoint and slice
        self.sizes: dict[str, int] = {}  # bytes of the reply, by endpoint
        for table, ids, _ in self._wanted.values():
            size = math.prod(table.shape[1:]) * table.dtype.itemsize
            for part, inside, numbers in table.shared_out(ids):
                self._inside[part.name] = inside
                self.numbers.setdefault(part.endpoint, {})[part.name] = numbers
                self.sizes[part.endpoint] = self.sizes.get(part.endpoint, 0) + size * len(inside)

    def messages(self) -> dict[str, Message]:
        """Messages that ask for these rows and nothing else."""
        return {at: Message(numbers, reply_size=self.sizes[at]) for at, numbers in self.numbers.items()}

    def has(self, ids: Ids) -> bool:
        """Whether it asks for the rows of all these ids."""
        return all(self._places(name, each) is not None for name, each in ids.items())

    def rows(self, replies: Replies, ids: Ids = MappingProxyType({})) -> dict[str, np.ndarray]:
        """The rows of each table in the order of its ids, or of others, in memory that nobody else holds."""
        found = {}
        for name, (table, known, inverse) in self._wanted.items():
            rows = np.empty((len(known), *table.shape[1:]), table.dtype)
            for part in table.slices:
                rows[self._inside[part.name]] = dense(replies[part.endpoint][part.name])
            if name in ids:
                places = self._places(name, ids[name])
                assert places is not None, "rows of these ids were asked for"
                found[name] = rows[places]
            else:
                found[name] = spread(rows, inverse)
        return found

    def _places(self, name: str, ids: np.ndarray) -> np.ndarray | None:
        """The numbers of the rows of some ids among those that it asks for; None if it does not ask for all."""
        known = self._wanted[name][1]
        different, inverse = unique(np.concatenate([known, np.asarray(ids, np.int64)]))
        return inverse[len(known) :] if len(different) == len(known) else None


def request_rows(session: ServerCalls, wanted: Wanted) -> dict[str, np.ndarray]:
    """The rows of each table for its ids, in the order of the ids."""
    request = RowRequest(wanted)
    replies = session.exchange(ROWS, request.messages())
    session.use_rows(replies)
    return request.rows(replies)
