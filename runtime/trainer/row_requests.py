"""Requests for rows of tables that live on servers: one to each server, for any number of tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.packing import Message
from refluid.runtime.trainer.server_calls import ROWS
from refluid.runtime.trainer.session import Session
from refluid.runtime.transport.wire import Value, dense


def request_rows(session: Session, wanted: Mapping[str, tuple[SlicedVariable, np.ndarray]]) -> dict[str, np.ndarray]:
    """The rows of each table for its ids, which are valid, in the order of the ids."""
    requests: dict[str, dict[str, Value]] = {}
    inside: dict[str, np.ndarray] = {}
    for table, ids in wanted.values():
        for part in table.slices:
            inside[part.name] = np.flatnonzero((ids >= part.start) & (ids < part.end))
            requests.setdefault(part.endpoint, {})[part.name] = ids[inside[part.name]] - part.start
    replies = session.exchange(ROWS, {endpoint: Message(rows) for endpoint, rows in requests.items()})
    session.use_rows(replies)
    found = {}
    for name, (table, ids) in wanted.items():
        rows = found[name] = np.empty((len(ids), *table.shape[1:]), table.dtype)
        for part in table.slices:
            rows[inside[part.name]] = dense(replies[part.endpoint][part.name])
    return found
