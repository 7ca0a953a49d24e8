"""The exchanges of a trainer, one class per kind.

Operators are read once, when a program first runs; a step then only moves values.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from refluid.files.writing import write_together, writer_of
from refluid.ir.modes import Mode
from refluid.ir.operator import Operator
from refluid.ir.vartype import as_numpy
from refluid.lowering.exchange import Exchange
from refluid.places import Place
from refluid.runtime.trainer.async_exchange import AsyncExchange
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import ExchangePlan, SlicedVariable, job_of, read_plan
from refluid.runtime.trainer.gather import inventory
from refluid.runtime.trainer.geo import GeoExchange
from refluid.runtime.trainer.half_async import HalfAsyncExchange
from refluid.runtime.trainer.lookups import LookupExchange, ReadThrough
from refluid.runtime.trainer.packing import Message, Versions, join, pack, to_device, to_host
from refluid.runtime.trainer.remote_table import RemoteTable
from refluid.runtime.trainer.server_calls import OFFER, START
from refluid.runtime.trainer.session import current, session_of
from refluid.runtime.trainer.table_saving import saving_tables
from refluid.runtime.transport.wire import Value, pb
from refluid.scope import Scope


def plan_trainer_exchange(ops: Sequence[Operator], scope: Scope, place: Place) -> Exchange:
    """The exchange of a trainer's neighbouring operators."""
    if ops[0].type == "checkpoint_notify":
        return CheckpointNotify(ops)
    if ops[0].definition.rows_of is not None:
        return ReadThrough(ops, scope)
    return session_of(job_of(ops)).once(ops, lambda: _make(read_plan(ops), scope, place))


def _make(plan: ExchangePlan, scope: Scope, place: Place) -> Exchange:
    if plan.initial:
        return StartupExchange(plan, scope, place)
    if plan.lookups:
        assert not plan.pushes and not plan.pulls, "lookups are apart from pushes and pulls"
        return LookupExchange(plan, place)
    if plan.job.mode is Mode.SYNC:
        return PushPull(plan, place)
    if plan.job.mode is Mode.HALF_ASYNC:
        return HalfAsyncExchange(plan, place, PushPull(plan, place).exchange)
    if plan.job.mode is Mode.ASYNC:
        return AsyncExchange(plan, place)
    return GeoExchange(plan, scope, place)


class StartupExchange(TrainerExchange):
    """The end of a trainer's startup program: trainer 0 offers its parameters, and all start with the servers'."""

    def __init__(self, plan: ExchangePlan, scope: Scope, place: Place):
        super().__init__(plan, place)
        self._scope = scope
        self.session.kept.update(plan.kept)
        self.declare()

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        plan, session = self.plan, self.session
        if plan.job.trainer == 0:
            offers = pack([(variable, np.asarray(env[variable.name])) for variable in plan.pushes])
            empty = {endpoint: Message({}) for endpoint in plan.job.endpoints}
            session.exchange(OFFER, {**empty, **offers})
        for table in plan.dropped:  # tables stay on the servers
            array = RemoteTable(session, table.name, table.shape, as_numpy(table.dtype))
            self._scope.hold_remotely(table.name, array)
        if not plan.pulls:
            return {}
        replies = session.exchange(START, pack((), self.pulls))
        session.use(replies)
        values = {variable.name: join(variable, replies) for variable in plan.pulls}
        if plan.job.mode is not Mode.GEO:
            return {name: to_device(value, self._device) for name, value in values.items()}
        trained = values.keys() - session.kept
        session.started_with = {name: np.array(values[name]) for name in trained}
        # Steps write these themselves: what they begin with is as they leave it, or they would be compiled twice.
        return {name: jax.device_put(value, self._device) for name, value in values.items()}


class PushPull(TrainerExchange):
    """Pushes gradients and pulls parameters, with one message to each server and one from it."""

    def __init__(self, plan: ExchangePlan, place: Place):
        super().__init__(plan, place)
        self._lock = threading.Lock()  # pushes of a trainer are numbered, also when several threads train
        self.declare()

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        pushes = list(zip(self.plan.pushes, to_host(self.plan.pushes, env), strict=True))
        with self._lock:
            self.session.step += 1
            return self.exchange(pushes)

    def exchange(
        self, pushes: Sequence[tuple[SlicedVariable, Value]], steps: int = 1, seen: Versions | None = None
    ) -> dict[str, Any]:
        """Pushes gradients that stand for a number of steps, and returns the parameters that come back."""
        messages, shared = self.session.rows_ahead.share(pack(pushes, self.pulls))
        replies = self.session.push(messages, steps, seen)
        self.session.rows_ahead.receive(shared, replies, self.session.step)
        self.session.use(replies)
        return self.unpack(replies)


class CheckpointNotify(Exchange):
    """Has servers write their variables to a folder, one file each, and the rows of tables that grow."""

    def __init__(self, ops: Sequence[Operator]):
        self._ops = ops

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        session = current()
        if session is None:
            raise RuntimeError("checkpoint_notify runs on trainers, after their startup program")
        session.flush()
        tables = sorted(name for name, slices in inventory(session).items() if slices[0].grows)
        for op in self._ops:
            folder = op.attr("dir")
            request = pb.SnapshotRequest(caller=session.caller, folder=folder)
            session.call_all("Snapshot", dict.fromkeys(op.attr("epmap"), request))
            if tables:
                with saving_tables(tables, folder) as manifests:
                    write_together(folder, {name: writer_of(content) for name, content in manifests.items()})
        return {}
