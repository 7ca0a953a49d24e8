"""Exchanges: what runs where a program's operators talk to other processes.

One class per kind. The operators are read once, when a program is first run; a step then only moves values.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.errors import OutOfRangeError
from refluid.ir.operator import Operator
from refluid.lowering.exchange import Exchange
from refluid.ops.core.values import Ragged, plain
from refluid.runtime.modes import Mode
from refluid.runtime.server.peers import ServerSums
from refluid.runtime.server.service import ListenAndServe
from refluid.runtime.trainer.async_exchange import Background
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import Lookup, Sliced, Traffic, job_of, read_traffic
from refluid.runtime.trainer.geo import GeoPushPull
from refluid.runtime.trainer.half_async import HalfAsync
from refluid.runtime.trainer.packing import join, messages, on_host, to_device
from refluid.runtime.trainer.session import OFFER, ROWS, START, Message, current, session_of
from refluid.runtime.transport.wire import Value, dense, pb
from refluid.scope import Scope


def plan_exchange(ops: Sequence[Operator], scope: Scope, place: Any) -> Exchange:
    """The exchange that neighbouring operators with role RPC or Dist stand for."""
    if ops[0].type == "listen_and_serv":
        return ListenAndServe(ops[0], scope, place)
    if ops[0].type == "server_sum":
        return ServerSums(ops)
    if ops[0].type == "checkpoint_notify":
        return Notice(ops)
    return session_of(job_of(ops)).once(ops, lambda: _trainer_exchange(ops, scope, place))


def _trainer_exchange(ops: Sequence[Operator], scope: Scope, place: Any) -> Exchange:
    traffic = read_traffic(ops)
    if traffic.initial:
        return Start(traffic, scope, place)
    if traffic.lookups:
        assert not traffic.pushes and not traffic.pulls, "lookups are apart from pushes and pulls"
        return Lookups(traffic, place)
    if traffic.job.mode is Mode.SYNC:
        return PushPull(traffic, place)
    if traffic.job.mode is Mode.HALF_ASYNC:
        return HalfAsync(traffic, place, PushPull(traffic, place).exchange)
    return (Background if traffic.job.mode is Mode.ASYNC else GeoPushPull)(traffic, place)


class Start(TrainerExchange):
    """The end of a trainer's startup program: trainer 0 offers its parameters, and all begin with the servers'."""

    def __init__(self, traffic: Traffic, scope: Scope, place: Any):
        super().__init__(traffic, place)
        self._scope = scope
        self.session.kept.update(traffic.kept)
        self.agree()

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        traffic, session = self.traffic, self.session
        if traffic.job.trainer == 0:
            offers = messages([(variable, np.asarray(env[variable.name])) for variable in traffic.pushes])
            empty = {endpoint: Message({}) for endpoint in traffic.job.endpoints}
            session.exchange(OFFER, {**empty, **offers})
        for name in traffic.dropped:  # tables stay on the servers
            held = self._scope.find_var(name)
            if held is not None:
                held.get_tensor().value = None
        if not traffic.pulls:
            return {}
        answers = session.exchange(START, messages((), self.wanted))
        values = {variable.name: join(variable, answers) for variable in traffic.pulls}
        if traffic.job.mode is Mode.GEO:
            trained = values.keys() - session.kept
            session.started_with = {name: np.array(values[name]) for name in trained}
        return {name: to_device(value, self._device) for name, value in values.items()}


class PushPull(TrainerExchange):
    """Gradients go to the servers and parameters come back, in one message to each server and one from it."""

    def __init__(self, traffic: Traffic, place: Any):
        super().__init__(traffic, place)
        self._lock = threading.Lock()  # a trainer's pushes are numbered, also when several threads train
        self.agree()

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        pushes = [(variable, on_host(env[variable.name])) for variable in self.traffic.pushes]
        with self._lock:
            self.session.step += 1
            return self.exchange(pushes)

    def exchange(self, pushes: Sequence[tuple[Sliced, Value]], steps: int = 1) -> dict[str, Any]:
        """Pushes gradients that stand for so many steps, and returns the parameters that come back."""
        return self.pulled(self.session.push(messages(pushes, self.wanted), steps))


class Lookups(TrainerExchange):
    """Rows of tables that live on servers, for the ids of a batch."""

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        wanted = [(lookup, *_ids_of(lookup, env)) for lookup in self.traffic.lookups]
        requests: dict[str, dict[str, Any]] = {}
        places = {}
        for lookup, ids, _ in wanted:
            for part in lookup.table.slices:
                inside = np.flatnonzero((ids >= part.begin) & (ids < part.end))
                requests.setdefault(part.endpoint, {})[part.name] = ids[inside] - part.begin
                places[lookup.table.name, part.name] = inside
        answers = self.session.exchange(ROWS, {endpoint: Message(ids) for endpoint, ids in requests.items()})
        found: dict[str, Any] = {}
        for lookup, ids, values in wanted:
            table = lookup.table
            rows = np.empty((len(ids), *table.shape[1:]), table.dtype)
            for part in table.slices:
                rows[places[table.name, part.name]] = dense(answers[part.endpoint][part.name])
            if lookup.padding >= 0:
                rows[ids == lookup.padding] = 0
            found.update(_outputs(lookup, values, rows))
        return found


def _ids_of(lookup: Lookup, env: Mapping[str, Any]) -> tuple[np.ndarray, list[Any]]:
    """All ids of a lookup in one array, and the values they come from."""
    values = [env[name] for name in lookup.ids]
    ids = np.concatenate([np.asarray(plain(value)).reshape(-1) for value in values])
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
    return ids, values


def _outputs(lookup: Lookup, values: Sequence[Any], rows: np.ndarray) -> dict[str, Any]:
    """The rows of each variable of ids, in its shape and with its sequences."""
    found, begin = {}, 0
    for name, value in zip(lookup.outputs, values, strict=True):
        shape = value.shape if lookup.keeps_last else value.shape[:-1]
        count = math.prod(value.shape)
        taken = rows[begin : begin + count].reshape(*shape, *rows.shape[1:])
        found[name] = value.with_data(taken) if isinstance(value, Ragged) else taken
        begin += count
    return found


class Notice(Exchange):
    """Servers are told to write their variables to a folder, each a file."""

    def __init__(self, ops: Sequence[Operator]):
        self._ops = ops

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        session = current()
        if session is None:
            raise RuntimeError("checkpoint_notify runs on trainers, after their startup program")
        session.flush()
        for op in self._ops:
            for endpoint in op.attr("epmap"):
                session.tell(endpoint, "Snapshot", pb.SnapshotRequest(caller=session.caller, folder=op.attr("dir")))
        return {}
