"""The Exchange method of a server: pushes wait for their update, updates change the shard, replies carry values.

All of it happens under one lock, on the thread whose push made an update due; the other threads of the round wait for
it there. That way a reply leaves as soon as the update is done, without another thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from refluid.files.variables import LOADED
from refluid.ir.modes import DELTA, Mode
from refluid.ir.operator import Operator
from refluid.runtime.observe.server_metrics import ServerMetrics
from refluid.runtime.server.averages import Averages
from refluid.runtime.server.changed_rows import ChangedRows
from refluid.runtime.server.compatibility import Arriving
from refluid.runtime.server.membership import Membership
from refluid.runtime.server.peers import Peers, updating
from refluid.runtime.server.rounds import LearningRatePace, Rounds
from refluid.runtime.server.shard import Shard
from refluid.runtime.transport import wire
from refluid.runtime.transport.admission import make_room
from refluid.runtime.transport.wire import Rows, Value, dense, pb
from refluid.scope import Scope

_PENDING_AFTER = 5.0  # seconds a request waits before the reply says for whom
MOST_STEPS = 100_000  # of one push
_COPIED = 32 << 20  # bytes; larger replies are sent in chunks, which copies them anyway

Buffers = list[Any]  # bytes or memory views, as `wire.encode` makes them


class Push(NamedTuple):
    """What a trainer has pushed."""

    tensors: dict[str, Value]
    steps: int  # how many training steps it stands for
    seen: int  # the version of the parameters that the oldest of them used
    message: bytes  # which the tensors are views into


class ExchangeHandler:
    """Pushes, updates and pulls of one server.

    Args:
        op: the ``listen_and_serv`` operator.
        lock: guards everything here; notified when an update was applied or parameters have arrived.
        peers: the other servers, for sums within an update.
        membership: the trainers.
    """

    def __init__(
        self,
        op: Operator,
        scope: Scope,
        place: Any,
        lock: threading.Condition,
        peers: Peers,
        membership: Membership,
    ):
        mode, trainers = Mode(op.attr("distributed_mode")), membership.trainers
        self.shard = Shard(op, scope, place)
        self._arriving = Arriving(self.shard)
        self.rounds = Rounds(trainers, waits=mode is Mode.SYNC)
        self.queue: dict[int, Push] = {}  # trainer -> its push, which waits for an update
        self.metrics = ServerMetrics(
            op.attr("endpoint"), mode.name.lower(), membership, self.rounds, self.queue, self.shard.growing
        )
        self.round_began: float | None = None  # when the first push of the current round arrived
        self.start_requested: float | None = None  # since when trainers wait for initial parameters
        self.held: dict[int, float] = {}  # trainer that is too far ahead -> since when it waits
        self.updating: tuple[float, list[int]] | None = None  # since when an update runs, and whose pushes are in it
        self.served = 0  # replies with what was asked for
        self._changed, self._peers, self._membership = lock, peers, membership
        self._pace = LearningRatePace(trainers)
        self._replies: dict[tuple[str, ...], bytes] = {}  # of this round, the same for all trainers
        self._changed_rows = ChangedRows(trainers) if mode is Mode.GEO else None
        self._averages = Averages() if op.attrs.get("averages") else None
        self.failure: Exception | None = None  # of the job: whoever waits gets it
        self._replied: dict[int, int] = {}  # trainer -> the push whose reply it was that changed what is known of it
        self.record: Callable[[float, list[bytes]], None] | None = None  # told of every update, before its replies
        self.record_reply: Callable[..., object] = lambda *_: None  # told of replies that `replay_reply` has to repeat
        self.lost: Callable[[int], None] = lambda pushes: None  # told of pushes that a restart has lost
        loaded = scope.find_var(LOADED)
        self.has_parameters = loaded is not None and loaded.value is not None

    def state(self) -> dict[str, Any]:
        """What a restarted server must know, tables apart, as plain data and arrays; the caller holds the lock."""
        return {
            "variables": self.shard.state(),
            "rounds": self.rounds.state(),
            "pace": self._pace.state(),
            "changed_rows": None if self._changed_rows is None else self._changed_rows.state(),
            "averages": None if self._averages is None else self._averages.state(),
            "replied": {str(trainer): sequence for trainer, sequence in self._replied.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.shard.restore(state["variables"])
        self.rounds.restore(state["rounds"])
        self._pace.restore(state["pace"])
        if self._changed_rows is not None:
            self._changed_rows.restore(state["changed_rows"])
        if self._averages is not None:
            self._averages.restore(state["averages"])
        self._replied = {int(trainer): sequence for trainer, sequence in state["replied"].items()}
        self.has_parameters = True

    def replay(self, now: float, messages: Sequence[bytes]) -> None:
        """Applies an update again whose messages were logged; the caller holds the lock."""
        trainers = []
        for message in messages:
            request = wire.decode(pb.ExchangeRequest, message)
            trainers.append(request.caller.trainer)
            if self.rounds.push(request.caller.trainer, request.sequence):
                tensors = wire.decode_tensors(request, message)
                pushed = {name: value for name, value in tensors.items() if name in self.shard.pushable}
                self._queue_push(request, pushed, message)
        self._apply(sorted(trainers), now)

    def replay_reply(self, trainer: int, sequence: int, wanted: Sequence[str], starts: bool) -> None:
        """Does again what a reply has changed of what is known of its trainer."""
        self._values_for(trainer, sequence, wanted, starts)

    def awaited(self) -> list[int]:
        """The trainers whose push the current round waits for, or trainers that are too far ahead."""
        if self.round_began is not None:
            return self.rounds.awaited()
        return sorted({slower for trainer in list(self.held) for slower in self.slower(trainer)})

    def handle(self, request: Any, message: bytes) -> Buffers:
        """Serves one Exchange request; the caller holds the lock."""
        purpose, tensors = self._purposes.get(request.purpose), wire.decode_tensors(request, message)
        if purpose is None:
            raise wire.MalformedError(f"no exchange has the purpose {request.purpose}")
        asked = self._arriving.check(tensors)
        make_room(asked + (0 if self._sends_changes_only(request) else self._arriving.size_of(request.wanted)))
        buffers = purpose(self, request, tensors, message)
        if request.wanted or request.purpose == pb.ExchangeRequest.ROWS:
            self.metrics.pulled()
        # Copied under the lock: a view into a parameter would keep the next update from happening in place.
        return [b"".join(buffers)] if sum(map(len, buffers)) <= _COPIED else buffers

    def _sends_changes_only(self, request: Any) -> bool:
        """Whether the reply has few rows of the tables that are pulled."""
        return self._changed_rows is not None and request.purpose in (pb.ExchangeRequest.STEP, pb.ExchangeRequest.WAIT)

    def begin_life(self, trainer: int) -> None:
        """A new process goes on for a trainer: what no update includes is pushed again."""
        self.held.pop(trainer, None)
        self._replied.pop(trainer, None)
        if self._changed_rows is not None:
            self._changed_rows.add(trainer)
        if self._averages is not None:
            self._averages.begin_life(trainer)
        if self.rounds.retract(trainer):
            del self.queue[trainer]
            if not self.queue:
                self.round_began = None

    def fail(self, failure: Exception) -> None:
        """Ends all waiting, now and from now on."""
        self.failure = failure
        self._changed.notify_all()

    def leave(self, trainer: int) -> None:
        """Stops waiting for a trainer."""
        self.rounds.leave(trainer)
        self.held.pop(trainer, None)
        self._update_if_due()

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Waits until a condition holds that changes under the lock, but not longer than a reply may take.

        Raises:
            Exception: the job has failed.
        """
        held = self._changed.wait_for(lambda: self.failure is not None or condition(), _PENDING_AFTER)
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # which every thread that raises it would add to
        return held

    # Purposes of a request

    def _step(self, request: Any, pushed: dict[str, Value], message: bytes) -> Buffers:
        trainer = request.caller.trainer
        self._check_steps(trainer, request.steps)
        member = self._membership.members[trainer]
        member.pushed = time.monotonic()
        member.max_staleness, member.unknown_steps = request.max_staleness, request.unknown_steps
        member.max_lead = request.max_lead if request.HasField("max_lead") else None
        asked = {name: pushed.pop(name) for name in [*pushed] if name not in self.shard.pushable}
        if self.rounds.push(trainer, request.sequence):
            self._queue_push(request, pushed, message)
            if self.round_began is None:
                self.round_began = time.monotonic()
            self._update_if_due()
        return self._wait(request, asked)

    @staticmethod
    def _check_steps(trainer: int, steps: int) -> None:
        """The learning rate schedule takes every one of them, while everybody waits."""
        if steps > MOST_STEPS:
            raise ValueError(f"a push of trainer {trainer} stands for {steps} steps; {MOST_STEPS} are allowed")

    def _queue_push(self, request: Any, pushed: dict[str, Value], message: bytes) -> None:
        self.queue[request.caller.trainer] = Push(pushed, request.steps, request.seen, message)

    def _wait(self, request: Any, asked: dict[str, Value], message: bytes = b"") -> Buffers:
        trainer, sequence = request.caller.trainer, request.sequence
        if not self.rounds.has(trainer, sequence):  # it was pushed to a process that is gone
            return wire.encode(pb.ExchangeReply(version=self.rounds.version, pending=True, missing=True))
        if not self.wait_for(lambda: self.rounds.counted(trainer) >= sequence):
            return self.pending(self.awaited(), self.round_began)
        if self._hold(trainer):
            return self._reply(request, asked)
        return self.pending(self.slower(trainer), self.held.get(trainer))

    def slower(self, trainer: int) -> list[int]:
        """The trainers that one which is too far ahead waits for."""
        return self._membership.too_far_behind(trainer)

    def _hold(self, trainer: int) -> bool:
        """Holds a trainer that is too far ahead of others; whether it may go on."""
        if self.slower(trainer):
            self.held.setdefault(trainer, time.monotonic())
            if not self.wait_for(lambda: not self.slower(trainer)):
                return False
        self.held.pop(trainer, None)
        return True

    def _offer(self, request: Any, pushed: dict[str, Value], message: bytes) -> Buffers:
        if not self.has_parameters:
            for name, value in pushed.items():
                self.shard.write(name, dense(value))
            self.has_parameters = True
            self.start_requested = None
            self._changed.notify_all()
        return wire.encode(pb.ExchangeReply(version=self.rounds.version))

    def _start(self, request: Any, pushed: dict[str, Value], message: bytes) -> Buffers:
        if not self.has_parameters and self.start_requested is None:
            self.start_requested = time.monotonic()
        if self.wait_for(lambda: self.has_parameters):
            return self._reply(request)
        return self.pending([0], self.start_requested)

    def _rows(self, request: Any, pushed: dict[str, Value], message: bytes) -> Buffers:
        return self._encode(self._rows_of(pushed))

    def _rows_of(self, asked: Mapping[str, Value]) -> dict[str, Value]:
        return {name: self.shard.rows(name, dense(numbers)) for name, numbers in asked.items()}

    def _read(self, request: Any, pushed: Mapping[str, Value] = MappingProxyType({}), message: bytes = b"") -> Buffers:
        return self._encode(self.shard.read(request.wanted))

    _purposes = {
        pb.ExchangeRequest.STEP: _step,
        pb.ExchangeRequest.WAIT: _wait,
        pb.ExchangeRequest.OFFER: _offer,
        pb.ExchangeRequest.START: _start,
        pb.ExchangeRequest.ROWS: _rows,
        pb.ExchangeRequest.READ: _read,
    }

    # Updates

    def _update_if_due(self) -> None:
        due = self.rounds.due()
        if due and self.failure is None:
            self._apply(due, time.time())

    def _apply(self, due: Sequence[int], now: float) -> None:
        pushes = [self.queue.pop(trainer) for trainer in due]
        lost = self.rounds.skip_lost()
        if lost:
            self.lost(lost)
        steps = sum(push.steps for push in pushes)
        pace = 1 if self.rounds.waits else self._pace.due(len(self._membership.present()))
        began, self.updating = time.perf_counter(), (time.monotonic(), list(due))
        try:
            self._update([self._to_apply(due[0], push, now) for push in pushes], due[0], pace)
        finally:
            self.updating = None
        if not self.rounds.waits:
            self._pace.applied(steps)
        self.metrics.update_seconds.observe(time.perf_counter() - began)
        self._replies.clear()
        for trainer, push in zip(due, pushes, strict=True):
            self._membership.applied(trainer, push.steps)
            self.metrics.applied(trainer, staleness=max(0, self.rounds.version - push.seen))
            if self._changed_rows is not None:
                self._changed_rows.mark(trainer, push.tensors)
        self.rounds.applied(steps)
        self._record(now, [push.message for push in pushes])
        self.round_began = None
        self._changed.notify_all()

    def _record(self, now: float, messages: list[bytes]) -> None:
        if self.record is None:
            return
        try:
            self.record(now, messages)
        except Exception as error:
            self.fail(error)  # the update is in memory, but nobody may hear of it
            raise

    def _to_apply(self, trainer: int, push: Push, now: float) -> dict[str, Value]:
        if self._averages is None:
            return push.tensors
        self._averages.push(trainer, push.tensors, now)
        return self._averages.deltas(self.shard.read([name.removesuffix(DELTA) for name in push.tensors]))

    def _update(self, pushes: Sequence[dict[str, Value]], trainer: int, schedule_steps: int) -> None:
        token = updating.set((self._peers, self.rounds.round))
        try:
            self.shard.update(pushes, trainer=trainer, schedule_steps=schedule_steps)
        except Exception as error:
            self.rounds.discard()
            if self.rounds.waits:  # the other trainers of the round would wait forever
                self.fail(RuntimeError(f"update {self.rounds.round + 1} failed: {type(error).__name__}: {error}"))
            raise
        finally:
            updating.reset(token)

    # Replies

    def pending(self, awaited: Sequence[int], since: float | None) -> Buffers:
        """The reply to a request that has to wait longer: for whom, and since when."""
        now = time.monotonic()
        names = [self._membership.describe(trainer, now) for trainer in awaited]
        waited = 0.0 if since is None else now - since
        header = pb.ExchangeReply(version=self.rounds.version, pending=True, awaited=names, waited_seconds=waited)
        return wire.encode(header)

    def _reply(self, request: Any, asked: Mapping[str, Value] = MappingProxyType({})) -> Buffers:
        """The variables that a trainer pulls, and rows that it asks for; without rows, a round has one reply."""
        wanted, trainer = tuple(request.wanted), request.caller.trainer
        starts = request.purpose == pb.ExchangeRequest.START
        if wanted and (self.shard.remembers_pulls or (self._changed_rows is not None and not starts)):
            if request.sequence < self.rounds.counted(trainer):  # a request that came late: nobody reads the reply
                return self._encode({})
            self.record_reply(trainer, request.sequence, wanted, starts)
            values = self._values_for(trainer, request.sequence, wanted, starts)
            return self._encode({**values, **self._rows_of(asked)})
        if asked:
            return self._encode({**self.shard.read(wanted), **self._rows_of(asked)})
        if not self.rounds.waits:
            return self._read(request)
        found = self._replies.get(wanted)
        if found is None:
            found = self._replies[wanted] = b"".join(self._read(request))
        return [found]

    def _values_for(self, trainer: int, sequence: int, wanted: Sequence[str], starts: bool) -> dict[str, Value]:
        """What is pulled where a server keeps what each trainer has received; a reply that is repeated is the same."""
        again = self._replied.get(trainer) == sequence and not starts
        self._replied[trainer] = sequence
        if self._averages is not None:
            found = self._averages.replied(trainer) if again else self._averages.reply(trainer, self.shard.read(wanted))
            return dict(found)
        if self._changed_rows is not None:
            return self._changed_values(self._changed_rows, trainer, wanted, again=again)
        if not again:
            self.shard.remember_pulled(trainer)
        return dict(self.shard.pulled(trainer, wanted))

    def _changed_values(
        self, changed: ChangedRows, trainer: int, wanted: Sequence[str], *, again: bool
    ) -> dict[str, Value]:
        """GEO: whole variables, but only those rows of a table that other trainers have changed."""
        rows = {name: changed.take(trainer, name, again=again) for name in wanted}
        found: dict[str, Value] = dict(self.shard.read([name for name, numbers in rows.items() if numbers is None]))
        for name, numbers in rows.items():
            if numbers is not None:
                found[name] = Rows(numbers, self.shard.rows(name, numbers))
        return found

    def _encode(self, values: Mapping[str, Value]) -> Buffers:
        self.served += 1
        return wire.encode(pb.ExchangeReply(version=self.rounds.version), values)
