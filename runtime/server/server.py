"""A parameter server: decodes calls, lets `rounds` decide, updates its `shard`, encodes answers.

gRPC calls handlers on threads of its own, one for each call and each open line. Decisions and updates happen under one
lock, on the thread whose push made an update due; the others of the round wait for it there. A thread pool with a lock
and not an event loop: an answer arrives sooner, and the update needs no second thread.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import numpy as np

from refluid import flags
from refluid.files.variables import LOADED
from refluid.ir.operator import Operator
from refluid.log import Log
from refluid.lowering.exchange import Exchange
from refluid.runtime.modes import Mode
from refluid.runtime.observe.server_metrics import ServerMetrics
from refluid.runtime.server.barriers import Meetings
from refluid.runtime.server.membership import Roster
from refluid.runtime.server.peers import Peers
from refluid.runtime.server.rounds import ArrivalRounds, LearningRatePace, Rounds, SyncRounds, Verdict
from refluid.runtime.server.shard import Shard
from refluid.runtime.trainer.geo_deltas import ChangedRows
from refluid.runtime.transport import wire
from refluid.runtime.transport.connection import LARGE, LINES, listen, size_of
from refluid.runtime.transport.memory import keep_freed_memory
from refluid.runtime.transport.wire import Rows, Value, pb
from refluid.scope import Scope

_PATIENCE = 20.0  # seconds a call waits before it answers "not yet"
_GRACE = 5.0  # seconds that calls under way have to end when the server stops
_REMIND = 5.0  # seconds between two remarks about somebody who is awaited

_current: Server | None = None


def current() -> Server:
    """The server of this process."""
    assert _current is not None, "server_sum runs on parameter servers only"
    return _current


class Server(Exchange):
    """One parameter server: the exchange that a server's program consists of."""

    def __init__(self, op: Operator, scope: Scope, place: Any):
        self.endpoint: str = op.attr("endpoint")
        self.mode = Mode(op.attr("distributed_mode"))
        self.trainers: int = op.attr("Fanin")
        self.incarnation = secrets.randbits(63)
        self._scope = scope
        self._shard = Shard(op, scope, place)
        self._rounds: Rounds = (SyncRounds if self.mode is Mode.SYNC else ArrivalRounds)(self.trainers)
        self._pace = LearningRatePace(self.trainers)
        self._roster = Roster(self.trainers, time.monotonic())
        self._changed = threading.Condition()  # guards all of the above
        self._all_left = threading.Event()
        self._inbox: dict[int, dict[str, Value]] = {}
        self._steps: dict[int, int] = {}
        self._answers: dict[tuple[str, ...], list[bytes]] = {}  # of this round, the same for everybody
        self._rows = ChangedRows(self.trainers) if self.mode is Mode.GEO else None
        self._ready = False
        self._round_began: float | None = None
        self._meetings = Meetings(self.trainers)
        self.log = Log(role="server", endpoint=self.endpoint)
        self._watch = ServerMetrics(
            self.endpoint, self.mode.name.lower(), self._roster, lambda: self._rounds.round, lambda: len(self._inbox)
        )
        self.peers = Peers(op.attr("endpoints"), self.endpoint)

    @property
    def round(self) -> int:
        """How many updates this server has applied."""
        return self._rounds.round

    # Life: ready, serving, draining, stopped

    def __call__(self, env: Any) -> dict[str, Any]:
        """Serves until every trainer has left."""
        global _current
        held = self._scope.find_var(LOADED)
        self._ready = held is not None and held.value is not None
        handlers = {
            "Join": self._join,
            "Exchange": self._exchange,
            "Sum": self.peers.answer,
            "Barrier": self._barrier,
            "Leave": self._leave,
            "Lost": self._lost,
            "Beat": self._beat,
            "Inventory": self._inventory,
            "Snapshot": self._snapshot,
            "Status": self._status,
        }
        guarded = {name: self._guarded(name, handler) for name, handler in handlers.items()}
        server = listen(self.endpoint, guarded, threads=(LINES + 2) * self.trainers + 8)
        _current = self
        keep_freed_memory()
        metrics = self._watch.serve()
        try:
            server.start()
            print(f"Server listening on {self.endpoint}", flush=True)
            self._serve()
        finally:
            server.stop(_GRACE).wait()
            self.peers.close()
            if metrics is not None:
                metrics.close()
            _current = None
        self.log.info("all trainers have left, stopping", trainers=self.trainers, round=self.round)
        return {}

    def _serve(self) -> None:
        reminded = 0.0
        # Not on what changes in every round, which would wake this thread too.
        while not (self._all_left.wait(1.0) or self._roster.all_left):
            with self._changed:
                now = time.monotonic()
                silent = self._roster.silent(now, flags.read_flag("FLAGS_worker_update_interval_secs"))
                for trainer in silent:
                    self._give_up(trainer)
                began = self._round_began
                if began is not None and now - began > _REMIND and now - reminded > _REMIND:
                    reminded = now
                    names = ", ".join(self._roster.describe(trainer, now) for trainer in self._rounds.awaited())
                    self.log.warning("a round waits", round=self.round, seconds=now - began, awaited=names)
            for trainer in silent:  # not under the lock: the other servers may be telling us the same
                self.peers.tell_lost(trainer)

    def _guarded(
        self, name: str, handler: Callable[[bytes], Sequence[Any]]
    ) -> Callable[[bytes, grpc.ServicerContext], Any]:
        """A handler that is counted, and whose errors reach the caller as a status and a text, and the log."""

        def handle(message: bytes, context: grpc.ServicerContext) -> Any:
            began = time.perf_counter()
            try:
                answer = handler(message)
                self._watch.called(name, len(message), size_of(answer), time.perf_counter() - began)
                return answer
            except (KeyError, ValueError, IndexError, TypeError) as error:
                text = error.args[0] if isinstance(error, KeyError) else str(error)
                self._watch.refused()
                self.log.error("refused a call", call=name, reason=text, round=self.round)
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"server {self.endpoint}: {text}")
            except Exception as error:  # noqa: BLE001 - it is told and printed, and the server goes on
                self._watch.refused()
                self.log.error("failed", call=name, round=self.round, error=f"{type(error).__name__}: {error}")
                traceback.print_exc()
                context.abort(grpc.StatusCode.INTERNAL, f"server {self.endpoint}: {type(error).__name__}: {error}")

        return handle

    # Calls

    def _join(self, message: bytes) -> list[Any]:
        request = wire.decode(pb.JoinRequest, message)
        trainer = request.caller.trainer
        self._check_join(request)
        with self._changed:
            new = self._roster.join(trainer, request.caller.incarnation, time.monotonic())
            sequence = self._rounds.counted(trainer)
        if new:
            self.log.info("trainer joined", trainer=trainer, round=self.round)
        return wire.encode(pb.JoinReply(incarnation=self.incarnation, sequence=sequence))

    def _check_join(self, request: Any) -> None:
        trainer = request.caller.trainer
        for what, theirs, ours in (
            ("speaks protocol", request.protocol, wire.PROTOCOL),
            ("looks for server", request.endpoint, self.endpoint),
            ("trains in mode", request.mode, self.mode.name.lower()),
            ("counts trainers:", request.trainers, self.trainers),
        ):
            if theirs != ours:
                raise ValueError(f"trainer {trainer} {what} {theirs}, here it is {ours}; do both run the same script?")
        if not 0 <= trainer < self.trainers:
            raise ValueError(f"trainer {trainer} joins a job of {self.trainers} trainers, numbered from 0")
        for tensor, verb in (*((t, "sends") for t in request.pushes), *((t, "wants") for t in request.pulls)):
            self._check_tensor(trainer, verb, tensor)

    def _check_tensor(self, trainer: int, verb: str, tensor: Any) -> None:
        try:
            dtype, shape, sparse = self._shard.describe(tensor.name)
        except KeyError:
            raise ValueError(
                f"trainer {trainer} {verb} {tensor.name}, which is not here; do both run the same program?"
            ) from None
        theirs = f"{tensor.dtype}{list(tensor.dims)}{' rows' if tensor.sparse else ''}"
        ours = f"{dtype}{list(shape)}{' rows' if sparse else ''}"
        if verb == "wants":
            theirs, ours = theirs.removesuffix(" rows"), ours.removesuffix(" rows")
        if theirs != ours:
            raise ValueError(
                f"trainer {trainer} {verb} {tensor.name} as {theirs}, here it is {ours}; do both run the same program?"
            )

    def _exchange(self, message: bytes) -> list[Any]:
        request = wire.decode(pb.ExchangeRequest, message)
        pushed = wire.tensors(request.pushed, message)
        with self._changed:
            self._roster.see(request.caller.trainer, time.monotonic())
            buffers = self._purposes[request.purpose](self, request, pushed)
            if request.wanted or request.purpose == pb.ExchangeRequest.ROWS:
                self._watch.pulled(request.caller.trainer)
            # Copied here: a view into a parameter would keep the next update from happening in place.
            return [b"".join(buffers)] if size_of(buffers) <= LARGE else buffers

    def _step(self, request: Any, pushed: dict[str, Value]) -> list[Any]:
        trainer = request.caller.trainer
        if self._rounds.push(trainer, request.sequence) is not Verdict.OLD:
            self._watch.pushed(trainer)
            self._inbox[trainer], self._steps[trainer] = pushed, request.steps
            if self._round_began is None:
                self._round_began = time.monotonic()
            self._update_if_due()
        return self._wait(request, pushed)

    def _wait(self, request: Any, pushed: dict[str, Value]) -> list[Any]:
        trainer = request.caller.trainer
        if self._changed.wait_for(lambda: self._rounds.counted(trainer) >= request.sequence, _PATIENCE):
            return self._answer(request)
        return wire.encode(pb.ExchangeReply(version=self._rounds.round, pending=True))

    def _offer(self, request: Any, pushed: dict[str, Value]) -> list[Any]:
        if not self._ready:
            for name, value in pushed.items():
                assert isinstance(value, np.ndarray)
                self._shard.write(name, value)
            self._ready = True
            self._changed.notify_all()
        return wire.encode(pb.ExchangeReply(version=self._rounds.round))

    def _start(self, request: Any, pushed: dict[str, Value]) -> list[Any]:
        if self._changed.wait_for(lambda: self._ready, _PATIENCE):
            return self._answer(request)
        return wire.encode(pb.ExchangeReply(version=self._rounds.round, pending=True))

    def _look_up(self, request: Any, pushed: dict[str, Value]) -> list[Any]:
        found = {}
        for name, ids in pushed.items():
            assert isinstance(ids, np.ndarray)
            found[name] = self._shard.rows(name, ids)
        return self._encode(found)

    def _read(self, request: Any, pushed: dict[str, Value]) -> list[Any]:
        return self._encode(dict(zip(request.wanted, self._shard.read(request.wanted), strict=True)))

    _purposes = {
        pb.ExchangeRequest.STEP: _step,
        pb.ExchangeRequest.WAIT: _wait,
        pb.ExchangeRequest.OFFER: _offer,
        pb.ExchangeRequest.START: _start,
        pb.ExchangeRequest.ROWS: _look_up,
        pb.ExchangeRequest.READ: _read,
    }

    def _leave(self, message: bytes) -> list[Any]:
        request = wire.decode(pb.CallerRequest, message)
        with self._changed:
            self._part_with(request.caller.trainer)
        return wire.encode(pb.Empty())

    def _lost(self, message: bytes) -> list[Any]:
        """Another server has given a trainer up. Who has come here too is judged here."""
        request = wire.decode(pb.CallerRequest, message)
        with self._changed:
            if not self._roster.has_come(request.caller.trainer):
                self._give_up(request.caller.trainer)
        return wire.encode(pb.Empty())

    def _beat(self, message: bytes) -> list[Any]:
        request = wire.decode(pb.CallerRequest, message)
        self._roster.see(request.caller.trainer, time.monotonic())  # not under the lock: an update may take long
        return wire.encode(pb.Empty())

    def _inventory(self, message: bytes) -> list[Any]:
        return wire.encode(pb.Text(text=json.dumps(self._shard.slices)))

    def _snapshot(self, message: bytes) -> list[Any]:
        request = wire.decode(pb.SnapshotRequest, message)
        with self._changed:
            self._shard.save(request.folder)
        return wire.encode(pb.Empty())

    def _barrier(self, message: bytes) -> list[Any]:
        request = wire.decode(pb.ExchangeRequest, message)
        with self._changed:
            self._meetings.come(request.caller.trainer, request.sequence)
            self._changed.notify_all()
            pending = not self._changed.wait_for(lambda: not self._meetings.missing(request.sequence), _PATIENCE)
            if pending:
                now = time.monotonic()
                names = ", ".join(self._roster.describe(t, now) for t in self._meetings.missing(request.sequence))
                self.log.warning("a barrier waits", awaited=names)
        return wire.encode(pb.ExchangeReply(version=self._rounds.round, pending=pending))

    def _status(self, message: bytes) -> list[Any]:
        awaited = self._rounds.awaited() if self._round_began is not None else []
        return wire.encode(pb.Text(text=json.dumps(self._watch.status(awaited))))

    # What calls do, under the lock

    def _give_up(self, trainer: int) -> None:
        described = self._roster.describe(trainer, time.monotonic())
        self.log.warning("a silent trainer is given up", awaited=described)
        self._part_with(trainer)
        self._roster.give_up(trainer)

    def _part_with(self, trainer: int) -> None:
        self._roster.leave(trainer, time.monotonic())
        self._rounds.leave(trainer)
        self._meetings.leave(trainer)
        self._update_if_due()
        self._changed.notify_all()
        if self._roster.all_left:
            self._all_left.set()

    def _update_if_due(self) -> None:
        due = self._rounds.due()
        if not due:
            return
        pushes = [self._inbox.pop(trainer) for trainer in due]
        steps = sum(self._steps[trainer] for trainer in due)
        pace = 1 if self._rounds.waits else self._pace.advance(steps)
        began = time.perf_counter()
        self._shard.update(pushes, trainer=due[0], schedule_steps=pace)
        self._watch.updated(time.perf_counter() - began)
        self._answers.clear()
        for trainer, pushed in zip(due, pushes, strict=True):
            self._roster.members[trainer].steps += self._steps[trainer]
            if self._rows is not None:
                self._rows.mark(trainer, pushed)
        self._rounds.applied()
        self._round_began = None
        self._changed.notify_all()

    def _answer(self, request: Any) -> list[Any]:
        """The variables a trainer wants; in a round everybody gets the same bytes."""
        wanted, trainer = tuple(request.wanted), request.caller.trainer
        if self._rows is not None and request.purpose == pb.ExchangeRequest.STEP:
            return self._encode(self._since_last_time(trainer, wanted))
        self._shard.remember_pulled(trainer)
        if not self._rounds.waits:
            return self._encode(dict(zip(wanted, self._shard.read(wanted), strict=True)))
        found = self._answers.get(wanted)
        if found is None:
            encoded = self._encode(dict(zip(wanted, self._shard.read(wanted), strict=True)))
            found = self._answers[wanted] = [b"".join(encoded)]
        return list(found)

    def _since_last_time(self, trainer: int, wanted: Sequence[str]) -> dict[str, Value]:
        """GEO: of a table, only the rows that others have changed."""
        assert self._rows is not None
        found: dict[str, Value] = {}
        for name in wanted:
            (value,) = self._shard.read([name])
            rows = self._rows.take(trainer, name)
            found[name] = value if rows is None else Rows(rows, value[rows])
        return found

    def _encode(self, values: dict[str, Value]) -> list[Any]:
        tensors = [wire.describe(name, value) for name, value in values.items()]
        header = pb.ExchangeReply(version=self._rounds.round, tensors=tensors)
        return wire.encode(header, values.values())
