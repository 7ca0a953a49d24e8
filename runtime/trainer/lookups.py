"""Lookups in tables that live on servers: one request per server for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from refluid.errors import OutOfRangeError
from refluid.ir.modes import Mode
from refluid.ir.operator import Operator
from refluid.ir.slices import NO_ROW
from refluid.lowering.exchange import Exchange
from refluid.ops.core.values import Ragged, plain
from refluid.places import Place
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan, Lookup, SlicedVariable
from refluid.runtime.trainer.remote_table import RemoteTable
from refluid.runtime.trainer.row_requests import Ids, RowRequest, request_rows
from refluid.runtime.trainer.rows_ahead import Expected
from refluid.runtime.trainer.server_calls import ROWS
from refluid.runtime.trainer.session import Session
from refluid.scope import Scope


class LookupExchange(TrainerExchange):
    """Fetches the rows of tables on servers for the ids of a batch."""

    def __init__(self, plan: ExchangePlan, place: Place):
        super().__init__(plan, place)
        self._lookups = _by_table(plan.lookups)
        self._sources = [name for lookup in plan.lookups for name in lookup.ids]
        self.expects = plan.job.mode is not Mode.GEO  # its trainers hold most rows already
        if plan.job.mode is Mode.GEO:
            for lookup in plan.lookups:
                self.session.copies.hold(lookup.table, lookup.trainer_budget)

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        session = self.session
        if self.plan.job.mode is Mode.GEO:
            return _look_up_copies(session, self._lookups, env, keeps=True)
        fed = [env[name] for name in self._sources]
        ids = cache(partial(_all_ids, self._lookups, env))
        expected = session.rows_ahead.take(id(self), fed, ids, session.step)
        if expected is None:
            return _look_up(session, self._lookups, ids(), env)
        assert expected.replies is not None
        session.use_earlier_rows(expected.replies)
        if expected.is_of(fed):
            return _all_outputs(self._lookups, expected.ids, expected.wanted.rows(expected.replies), env)
        return _all_outputs(self._lookups, ids(), expected.wanted.rows(expected.replies, ids()), env)

    def expect(self, feeds: Mapping[str, Any]) -> None:
        if not all(name in feeds for name in self._sources):
            return  # ids that the step computes, or that are not known yet
        try:
            ids = _all_ids(self._lookups, feeds)
        except OutOfRangeError:
            return  # the step itself will raise it
        request = RowRequest({name: (lookups[0].table, ids[name]) for name, lookups in self._lookups.items()})
        session = self.session
        ask = partial(session.exchange, ROWS, request.messages())
        fed = [feeds[name] for name in self._sources]
        session.rows_ahead.expect(id(self), Expected(fed, ids, request, ask), session.step)


class ReadThrough(Exchange):
    """The lookups of a program that knows of no servers, such as one cloned for tests before it was transpiled.

    Servers have all that this trainer has computed before they are asked; in GEO mode it reads its own copies. Closing
    it does not leave the job: only a training program takes part in one.
    """

    def __init__(self, ops: Sequence[Operator], scope: Scope):
        tables = {name: _remote_table(scope, name) for op in ops for name in op.input("W")}
        self._tables = list(tables.values())
        self._lookups = _by_table([_read_lookup(op, tables[op.input("W")[0]].sliced) for op in ops])

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        for table in self._tables:
            table.check_present()
        session = self._tables[0].session
        if all(name in session.copies for name in self._lookups):  # GEO: what this trainer has learned itself
            return _look_up_copies(session, self._lookups, env, keeps=False)
        session.flush()
        return _look_up(session, self._lookups, _all_ids(self._lookups, env), env)


def _remote_table(scope: Scope, name: str) -> RemoteTable:
    held = scope.find_var(name)
    table = None if held is None else held.value
    assert isinstance(table, RemoteTable), f"{name} became remote when this trainer started"
    table.check_present()
    return table


def _read_lookup(op: Operator, table: SlicedVariable) -> Lookup:
    padding, keeps_last = op.attrs.get("padding_idx", -1), op.type == "lookup_table_v2"
    return Lookup(table, tuple(op.input("Ids")), tuple(op.output("Out")), padding, keeps_last, op)


def _by_table(lookups: Sequence[Lookup]) -> dict[str, list[Lookup]]:
    found: dict[str, list[Lookup]] = {}
    for lookup in lookups:
        found.setdefault(lookup.table.name, []).append(lookup)
    return found


def _look_up(
    session: Session, tables: Mapping[str, Sequence[Lookup]], ids: Ids, env: Mapping[str, Any]
) -> dict[str, Any]:
    """What the lookups in each table find. They share one request: servers know rows by the name of the slice only."""
    rows = request_rows(session, {name: (lookups[0].table, ids[name]) for name, lookups in tables.items()})
    return _all_outputs(tables, ids, rows, env)


def _look_up_copies(
    session: Session, tables: Mapping[str, Sequence[Lookup]], env: Mapping[str, Any], *, keeps: bool
) -> dict[str, Any]:
    """The same for tables that this trainer holds copies of rows of."""
    ids = _all_ids(tables, env)
    return _all_outputs(tables, ids, session.copies.look_up(ids, keeps=keeps), env)


def _all_ids(tables: Mapping[str, Sequence[Lookup]], env: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The ids that are looked up in each table."""
    return {name: np.concatenate([_ids_of(lookup, env) for lookup in lookups]) for name, lookups in tables.items()}


def _all_outputs(
    tables: Mapping[str, Sequence[Lookup]],
    ids: Mapping[str, np.ndarray],
    rows: Mapping[str, np.ndarray],
    env: Mapping[str, Any],
) -> dict[str, Any]:
    """What the lookups find, given the rows of each table."""
    found: dict[str, Any] = {}
    for name, lookups in tables.items():
        found.update(_outputs(lookups, ids[name], rows[name], env))
    return found


def _ids_of(lookup: Lookup, env: Mapping[str, Any]) -> np.ndarray:
    """All ids of a lookup in one array."""
    ids = np.concatenate([np.asarray(plain(env[name])).reshape(-1) for name in lookup.ids])
    if lookup.table.grows:
        _check_any(lookup, ids)
        return ids.astype(np.int64, copy=False)
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


def _check_any(lookup: Lookup, ids: np.ndarray) -> None:
    """Any int64 is the id of a row, but for the one that stands for padding."""
    if ids.dtype.kind not in "iu" or (ids.size and ids.max() == NO_ROW):
        what = f"are {ids.dtype}" if ids.dtype.kind not in "iu" else f"contain {NO_ROW}, which stands for no row"
        raise OutOfRangeError(
            lookup.operator.type,
            f"ids of rows of table {lookup.table.name} must be int64; these {what}",
            [f"Ids         {', '.join(lookup.ids)}"],
            written_at=str(lookup.operator.written_at),
        )


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
