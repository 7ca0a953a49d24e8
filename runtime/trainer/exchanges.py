"""Exchanges: what runs where a program's operators talk to other processes.

One class per kind. The operators are read once, when a program is first run; a step then only moves values.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.ir.operator import Operator
from refluid.lowering.exchange import Exchange
from refluid.runtime.modes import Mode
from refluid.runtime.server.peers import ServerSums
from refluid.runtime.server.service import ListenAndServe
from refluid.runtime.trainer.async_exchange import Background
from refluid.runtime.trainer.base import TrainerExchange
from refluid.runtime.trainer.exchange_plan import Sliced, Traffic, job_of, read_traffic
from refluid.runtime.trainer.geo import GeoPushPull
from refluid.runtime.trainer.half_async import HalfAsync
from refluid.runtime.trainer.lookups import Lookups
from refluid.runtime.trainer.packing import join, messages, on_host, to_device
from refluid.runtime.trainer.session import OFFER, START, Message, current, session_of
from refluid.runtime.transport.wire import Value, pb
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
