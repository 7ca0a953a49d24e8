"""Lookups in tables that live on servers: one request per server for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.errors import OutOfRangeError
from refluid.ops.core.values import Ragged, plain
from refluid.places import Place
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan, Lookup, SlicedVariable
from refluid.runtime.trainer.packing import Message, Replies
from refluid.runtime.trainer.server_calls import ROWS
from refluid.runtime.transport.wire import Value, dense


class LookupExchange(TrainerExchange):
    """Fetches the rows of tables on servers for the ids of a batch."""

    def __init__(self, plan: ExchangePlan, place: Place):
        super().__init__(plan, place)
        self._tables: dict[str, list[Lookup]] = {}
        for lookup in plan.lookups:
            self._tables.setdefault(lookup.table.name, []).append(lookup)

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        # All lookups of a table share one request: servers know rows by the name of the slice only.
        ids = {
            name: np.concatenate([_ids_of(lookup, env) for lookup in lookups]) for name, lookups in self._tables.items()
        }
        requests: dict[str, dict[str, Value]] = {}
        inside: dict[str, np.ndarray] = {}
        for name, lookups in self._tables.items():
            for part in lookups[0].table.slices:
                inside[part.name] = np.flatnonzero((ids[name] >= part.start) & (ids[name] < part.end))
                requests.setdefault(part.endpoint, {})[part.name] = ids[name][inside[part.name]] - part.start
        replies = self.session.exchange(ROWS, {endpoint: Message(rows) for endpoint, rows in requests.items()})
        self.session.use_rows(replies)
        found: dict[str, Any] = {}
        for name, lookups in self._tables.items():
            rows = _rows(lookups[0].table, len(ids[name]), inside, replies)
            found.update(_outputs(lookups, ids[name], rows, env))
        return found


def _ids_of(lookup: Lookup, env: Mapping[str, Any]) -> np.ndarray:
    """All ids of a lookup in one array."""
    ids = np.concatenate([np.asarray(plain(env[name])).reshape(-1) for name in lookup.ids])
    height = lookup.table.shape[0]
    wrong = (ids < 0) | (ids >= height)
    if lookup.padding >= 0:
        wrong &= ids != lookup.padding
    bad = ids[wrong]
    if bad.size:
        raise OutOfRangeError(
            lookup.operator.type,
            f"id {bad[0]} is not in the table {lookup.table.name}, which has {height} rows",
            [f"Ids         {', '.join(lookup.ids)}"],
            written_at=str(lookup.operator.written_at),
        )
    return ids


def _rows(table: SlicedVariable, count: int, inside: Mapping[str, np.ndarray], replies: Replies) -> np.ndarray:
    """The rows of all ids of a table, in the order of the ids."""
    rows = np.empty((count, *table.shape[1:]), table.dtype)
    for part in table.slices:
        rows[inside[part.name]] = dense(replies[part.endpoint][part.name])
    return rows


def _outputs(lookups: Sequence[Lookup], ids: np.ndarray, rows: np.ndarray, env: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of each variable of ids, in its shape and with its sequences."""
    found, begin = {}, 0
    for lookup in lookups:
        for source, name in zip(lookup.ids, lookup.outputs, strict=True):
            value = env[source]
            end = begin + math.prod(value.shape)
            taken = rows[begin:end]
            if lookup.padding >= 0:
                taken[ids[begin:end] == lookup.padding] = 0
            shape = value.shape if lookup.keeps_last else value.shape[:-1]
            taken = taken.reshape(*shape, *rows.shape[1:])
            found[name] = value.with_data(taken) if isinstance(value, Ragged) else taken
            begin = end
    return found
