"""A parameter server without a network: bytes of a request in, buffers of the reply out.

`Server.handle` is called on many threads at once. It decodes a request, lets `membership`, `barriers` and `rounds`
decide, and acts under one lock. What listens on a port and maps exceptions to status codes is in `service`; tests call
`handle` directly.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from refluid.errors import LostTrainerError
from refluid.ir.modes import Mode
from refluid.ir.operator import Operator
from refluid.log import Log
from refluid.runtime.observe.waits import Wait, as_message, cut, from_message, trainer_number
from refluid.runtime.server.attendance import Attendance
from refluid.runtime.server.barriers import Barriers
from refluid.runtime.server.compatibility import check_join
from refluid.runtime.server.durable.records import JOIN, LEAVE, REPLY, SHRINK, SUM, UPDATE, read_tree, read_update
from refluid.runtime.server.durable.recovery import Recovery
from refluid.runtime.server.durable.settings import Settings
from refluid.runtime.server.exchange import Buffers, ExchangeHandler
from refluid.runtime.server.folders import check_snapshot, folder_for
from refluid.runtime.server.held_tables import GrowingTable
from refluid.runtime.server.liveness import Liveness
from refluid.runtime.server.membership import Admission, JoinAttempt, Member, Membership
from refluid.runtime.server.peers import Peers, ServerConnection
from refluid.runtime.server.table_saving import TableSaving
from refluid.runtime.server.view import View
from refluid.runtime.transport import wire
from refluid.runtime.transport.admission import NoRoomError
from refluid.runtime.transport.refusals import LONGEST_TEXT
from refluid.runtime.transport.wire import MalformedError, pb
from refluid.scope import Scope

_REPORT_EVERY = 5.0  # seconds between two messages about a trainer that is awaited
_MOST_FAILURES = 32  # different ones that are logged in this time
_KEPT = 64  # replies that are remembered, for requests that arrive again
_DECIDE_EVERY = 0.1  # seconds between two looks at an id that two processes claim
_CUT_TIMEOUT = 20.0  # seconds
_PAUSED = 5.0  # seconds between two checks, which come every second: this process did not run
_FIRST_SNAPSHOT = "the first snapshot of all servers"
_LASTING = (pb.ExchangeRequest.STEP, pb.ExchangeRequest.WAIT, pb.ExchangeRequest.OFFER, pb.ExchangeRequest.START)
REFUSALS = (KeyError, ValueError, IndexError, TypeError)  # what a request is refused with; others are failures


class RestartedError(ConnectionError):
    """The caller has joined the predecessor of this server; it is to join again and to repeat its request."""


class Server:
    """One parameter server: its state, and what every method does to it.

    Args:
        op: the ``listen_and_serv`` operator.
        scope: holds the variables; the startup program has run in it.
        place: where updates are computed.
        connect: opens a connection to another server of the job.
    """

    def __init__(self, op: Operator, scope: Scope, place: Any, connect: Callable[[str], ServerConnection]):
        self.endpoint: str = op.attr("endpoint")
        self.mode = Mode(op.attr("distributed_mode"))
        self.trainers: int = op.attr("Fanin")
        self.incarnation = secrets.randbits(63)
        self.log = Log(role="server", endpoint=self.endpoint)
        self.peers = Peers(op.attr("endpoints"), self.endpoint, connect)
        self._liveness = Liveness.of_flags(self.mode)
        self._membership = Membership(self.trainers, time.monotonic(), self._liveness.heartbeat)
        self._checked = math.inf  # when trainers were checked last
        self._joining = threading.Lock()  # not the lock of updates: one of those may take long
        self._changed = threading.Condition()  # guards what follows, and notifies of changes
        self._barriers = Barriers(self.trainers)
        self._exchange = ExchangeHandler(op, scope, place, self._changed, self.peers, self._membership)
        self._attendance = Attendance(
            self.mode,
            self._liveness,
            self._membership,
            self._barriers,
            self._exchange,
            self._changed,
            self.log,
            self._record_begin,
            self._record_leave,
        )
        self.all_left = self._attendance.all_left
        self._saving = TableSaving(self._growing(), self._changed)
        self.metrics = self._exchange.metrics
        self.view = View(
            self.endpoint, self._membership, self._exchange, self._barriers, self.peers, lambda: self._recovery
        )
        self._shrinking = threading.Lock()
        self._shrunk: dict[int, str] = {}  # the last requests to give up rows, and the replies to them
        self._failures: dict[tuple[str, str], float] = {}  # what was logged, and when
        self.tables = self._exchange.shard.tables
        self._recovery: Recovery | None = None
        settings = Settings.of_flags()
        if settings is not None:
            self._begin_recovery(settings)
        self._reported: dict[str, float] = {}  # what is waited for -> when it was last reported
        self.methods: dict[str, Callable[[bytes], Buffers]] = {
            "Join": self._join,
            "Exchange": self._handle_exchange,
            "Barrier": self._barrier,
            "Heartbeat": self._heartbeat,
            "Leave": self._leave,
            "Inventory": self._inventory,
            "Snapshot": self._snapshot,
            "Shrink": self._shrink,
            "Tables": self._tables,
            "Status": self._status,
            "Sum": self.peers.handle_sum,
            "Cut": self._cut,
            "Lost": self._lost,
        }

    # Surviving a restart

    def _begin_recovery(self, settings: Settings) -> None:
        described = {"endpoint": self.endpoint, "mode": self.mode.name.lower(), "trainers": self.trainers}
        endpoints = self.peers.endpoints
        found = Recovery(settings, self, self._changed, self._saving.writing, described, endpoints, self._ask, self.log)
        found.pause_seconds = self._exchange.shard.pause_seconds = self.metrics.snapshot_pause_seconds.observe
        self._exchange.lost = self._report_lost
        self._exchange.record, self.peers.record = found.record_update, self._record_sum
        self._exchange.record_reply = lambda *reply: found.record_tree(REPLY, list(reply))
        self._recovery = self.metrics.recovery = found
        found.begin()
        if found.restored and self._is_over:  # it was killed between the last Leave and its end
            self.all_left.set()

    @property
    def most_trainers(self) -> int:
        """How many trainers may be served at once, those that are added while the job runs and tools included."""
        return self.trainers + 2 if self.mode is Mode.SYNC else 2 * self.trainers + 16

    @property
    def has_parameters(self) -> bool:
        """Whether training may begin."""
        return self._exchange.has_parameters

    def applied(self) -> dict[int, int]:
        """The number of the last push of every trainer that was applied here; none if nothing is pushed here."""
        return self._exchange.rounds.all_counted() if self._exchange.shard.pushable else {}

    def lacking(self, until: Mapping[int, int]) -> dict[int, int]:
        """The pushes until those given that are still to come, by trainer: the last of each."""
        if not self._exchange.shard.pushable:
            return {}
        rounds, members = self._exchange.rounds, self._membership.members
        return {
            trainer: last
            for trainer, last in until.items()
            if rounds.lacks(trainer, last) and trainer in members and not members[trainer].left
        }

    def _ask(self, endpoint: str, request: Any) -> Any:
        """Sends a CutRequest to a server of this job."""
        if endpoint == self.endpoint:
            assert self._recovery is not None
            return self._recovery.handle(request)
        return wire.decode(pb.CutReply, self.peers.call(endpoint, "Cut", wire.encode(request), _CUT_TIMEOUT))

    def _cut(self, message: bytes) -> Buffers:
        if self._recovery is None:
            raise ValueError("this server keeps no snapshots: FLAGS_rpc_server_snapshots is not set here")
        return wire.encode(self._recovery.handle(wire.decode(pb.CutRequest, message)))

    def state(self) -> dict[str, Any]:
        """What a restarted server must know, tables apart, as plain data and arrays; with the lock held."""
        return {
            **self._exchange.state(),
            "members": self._membership.state(),
            "barriers": self._barriers.state(),
            "sums": self.peers.state(),
            "shrunk": {str(number): text for number, text in self._shrunk.items()},
        }

    def settle(self) -> None:
        """Returns when what `state` has returned is complete; without the lock."""
        self._exchange.shard.settle()

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self._exchange.restore(state)
        self._membership.restore(state["members"], time.monotonic())
        self._barriers.restore(state["barriers"])
        self.peers.restore(state["sums"])
        self._shrunk = {int(number): text for number, text in state["shrunk"].items()}

    def replay(self, kind: bytes, content: memoryview) -> None:
        """Does again what was logged; with the lock held."""
        if kind == UPDATE:
            self._exchange.replay(*read_update(content))
        elif kind == SHRINK:
            self._give_up_rows(wire.decode(pb.ShrinkRequest, bytes(content)))
        elif kind == REPLY:
            self._exchange.replay_reply(*read_tree(content))
        elif kind == SUM:
            self.peers.know(*read_tree(content))
        elif kind == JOIN:
            joined = read_tree(content)
            for trainer, kept in joined.items():
                self._replay_begin(int(trainer), kept["incarnation"])
            self._membership.restore(joined, time.monotonic())
            for trainer in joined:
                self._barriers.enter(int(trainer))
        elif kind == LEAVE:
            trainer, evicted = read_tree(content)
            self._membership.leave(trainer, time.monotonic())
            if evicted:
                self._membership.evict(trainer)
            self._exchange.rounds.leave(trainer)
            self._barriers.leave(trainer)

    def _replay_begin(self, trainer: int, incarnation: int) -> None:
        before = self._membership.members.get(trainer, Member()).incarnation
        if before != incarnation and (before is not None or self._membership.is_added(trainer)):
            self._exchange.begin_life(trainer)

    def _record_begin(self, trainer: int) -> None:
        if self._recovery is not None:
            self._recovery.record_tree(JOIN, {str(trainer): self._membership.state()[str(trainer)]})

    def _record_leave(self, trainer: int, evicted: bool) -> None:
        if self._recovery is not None:
            self._recovery.record_tree(LEAVE, [trainer, evicted])

    def _record_sum(self, round: int, key: str, totals: list[Any]) -> None:
        if self._recovery is not None:
            self._recovery.wait(self._recovery.record_tree(SUM, [round, key, totals]))

    def _report_lost(self, pushes: int) -> None:
        self.metrics.lost.inc(pushes)
        self.log.warning("updates are lost: they were applied after the last snapshot", lost=pushes, round=self.round)

    def close(self) -> None:
        """Ends the connections to other servers, and the files; those of a job that is over are removed."""
        self.peers.close()
        if self._recovery is not None:
            self._recovery.close(finished=self.all_left.is_set() and self._is_over)

    @property
    def _is_over(self) -> bool:
        """Whether the job has ended by itself: all trainers are gone, and not all were evicted."""
        members, succeeded = self._membership, self.failure is None
        return succeeded and members.all_left and any(not each.evicted for each in members.members.values())

    @property
    def failure(self) -> Exception | None:
        """Why the job has failed, if it has."""
        return self._exchange.failure

    @property
    def round(self) -> int:
        """How many updates this server has applied."""
        return self._exchange.rounds.round

    def handle(self, method: str, message: bytes) -> Buffers:
        """Serves a request; blocks until there is a reply, which after a few seconds may be that it is pending.

        Raises:
            Exception: one of `REFUSALS`, whose message is meant for the caller, or the server failed.
        """
        began = time.perf_counter()
        try:
            reply = self.methods[method](message)
        except (MalformedError, NoRoomError):  # which the listener logs
            self.metrics.refused.inc()
            raise
        except Exception as error:
            self.metrics.refused.inc()
            self._log_failure(method, error)
            raise
        self.metrics.called(method, len(message), sum(map(len, reply)), time.perf_counter() - began)
        return reply

    def _log_failure(self, method: str, error: Exception) -> None:
        """Logs why a request has failed; one that is repeated all the time, now and then, and never too many."""
        now, reason = time.monotonic(), describe(error)
        key = method, reason[:40]
        recent = {each: when for each, when in self._failures.items() if now - when < _REPORT_EVERY}
        if key in recent or len(recent) >= _MOST_FAILURES:
            return
        self._failures = {**recent, key: now}
        self.log.error("request failed", method=method, reason=reason[:LONGEST_TEXT], round=self.round)
        if not isinstance(error, (*REFUSALS, RestartedError)):
            traceback.print_exception(error)

    def check_trainers(self) -> None:
        """Notices trainers that are lost, and reports who is awaited; called about once a second."""
        if self._recovery is not None:
            self._recovery.check()
        now = time.monotonic()
        if now - self._checked > _PAUSED:
            self._membership.forgive(now)
        silent = self._find_lost(now)
        for trainer in silent:  # without the lock: the other servers may be calling this one for the same reason
            self.peers.report_lost(trainer)
        waits = self.view.own_waits(now)
        self._reported = {wait.what: self._reported.get(wait.what, 0.0) for wait in waits}
        for wait in waits:
            if wait.seconds >= _REPORT_EVERY and now - self._reported[wait.what] >= _REPORT_EVERY:
                self._reported[wait.what] = now
                self._report(wait, now)
        self._attendance.end_if_failed(now)
        self._checked = time.monotonic()

    def _find_lost(self, now: float) -> list[int]:
        """Notices trainers that are lost. An update that is due without them may fail, or the log: all hear of it."""
        with self._changed:
            try:
                return self._attendance.find_lost(now)
            except Exception as error:  # noqa: BLE001 - the job ends with it, and the server not before its trainers
                self._log_failure("leaving out a trainer", error)
                if self.failure is None:
                    self._exchange.fail(error)
                return []

    def _report(self, wait: Wait, now: float) -> None:
        numbers = map(trainer_number, wait.awaited)
        names = [
            name if number is None else self._membership.describe(number, now)
            for name, number in zip(wait.awaited, numbers, strict=True)
        ]
        fields = {"seconds": wait.seconds, "awaited": ", ".join(names), "round": self.round}
        self.log.warning(f"waiting for {wait.what}", **fields, problem=wait.problem or None)

    # Methods that trainers call

    def _join(self, message: bytes) -> Buffers:
        request = wire.decode(pb.JoinRequest, message)
        check_join(request, self.endpoint, self.mode.name.lower(), self.trainers, self._exchange.shard)
        self._check_failure()
        caller = request.caller
        attempt = JoinAttempt(caller.trainer, caller.incarnation, cut(request.host), time.monotonic())
        self._admit(attempt)
        member = self._membership.members[caller.trainer]
        if request.acknowledged > self._exchange.rounds.counted(caller.trainer):
            with self._changed:  # a snapshot may wait for them
                self._exchange.rounds.give_up(caller.trainer, request.acknowledged)
                self._changed.notify_all()
        if member.earlier_barriers + request.barriers > self._barriers.reached(caller.trainer):
            with self._changed:
                self._barriers.passed(caller.trainer, member.earlier_barriers + request.barriers)
                self._changed.notify_all()
        return wire.encode(
            pb.JoinReply(
                incarnation=self.incarnation,
                sequence=self._exchange.rounds.counted(caller.trainer),
                restored=self._recovery is not None and self._recovery.restored,
                steps=member.steps if self._exchange.shard.pushable else None,
                heartbeat_seconds=self._liveness.heartbeat,
            )
        )

    def _admit(self, attempt: JoinAttempt) -> None:
        """Makes a process the holder of its id, once it is clear that nobody else is."""
        while True:
            replaces = self._membership.replaces(attempt)
            # Between two updates and two snapshots, which know either of the one process or of the other.
            with self._changed if replaces else nullcontext(), self._joining:
                now = time.monotonic()
                admission = self._membership.decide(attempt, now)
                if admission is Admission.GRANTED and replaces == self._membership.replaces(attempt):
                    replaced = self._membership.join(attempt, now)
                    if replaced is not None:
                        self._attendance.begin_life(attempt.trainer, replaced)
                    return
            if admission is Admission.REFUSED:
                raise ValueError(self._membership.refusal(attempt, now))
            time.sleep(_DECIDE_EVERY)

    def _handle_exchange(self, message: bytes) -> Buffers:
        request = self._receive(pb.ExchangeRequest, message)
        member = self._membership.members[request.caller.trainer]
        member.active = time.monotonic()
        self._check_joined(member)
        with self._changed:
            self._see(request.caller)  # nobody has replaced it
            self._attendance.welcome_back()
            if request.purpose == pb.ExchangeRequest.STEP and not member.has_pushed:
                self._attendance.first_push(request.caller.trainer)
            had_parameters = self.has_parameters
            reply = self._exchange.handle(request, message)
            last = 0 if self._recovery is None else self._recovery.last
        if self._recovery is not None and request.purpose in _LASTING:
            if not had_parameters and self.has_parameters:
                self._recovery.snapshot_soon()
            if not self._has_first_snapshot(self._recovery):
                return wire.encode(pb.ExchangeReply(pending=True, awaited=[_FIRST_SNAPSHOT]))
            self._recovery.wait(last)
        return reply

    def _has_first_snapshot(self, recovery: Recovery) -> bool:
        """Waits for it as for anything else: not longer than a reply may take, and not for a job that has failed."""
        if recovery.has_first:
            return True
        with self._changed:
            return self._exchange.wait_for(lambda: recovery.has_first)

    def _check_joined(self, member: Member) -> None:
        if member.must_join:
            raise RestartedError(f"server {self.endpoint} was restarted; join it again")

    def _barrier(self, message: bytes) -> Buffers:
        request = self._receive(pb.ExchangeRequest, message)
        trainer, attendance, barriers = request.caller.trainer, self._attendance, self._barriers
        member = self._membership.members[trainer]
        self._check_joined(member)
        with self._changed:
            attendance.welcome_back()
            number = member.earlier_barriers + request.sequence
            barriers.arrive(trainer, number, time.monotonic(), request.text)
            member.at_barrier = True
            self._changed.notify_all()
            if not self._exchange.wait_for(
                lambda: not barriers.missing(number) or attendance.is_past(trainer, number, repeats=request.steps)
            ):
                return self._exchange.pending(barriers.missing(number), barriers.since(number))
            member.at_barrier = False
            if not barriers.missing(number):
                return wire.encode(pb.ExchangeReply(texts=barriers.texts(number)))
            attendance.pass_by(trainer, number)
            return wire.encode(pb.ExchangeReply())

    def _heartbeat(self, message: bytes) -> Buffers:
        request = self._receive(pb.HeartbeatRequest, message)  # without the lock: an update may take long
        self._check_failure()
        trainer, now = request.caller.trainer, time.monotonic()
        member = self._membership.members[trainer]
        member.doing, member.waits, member.reported = cut(request.doing), from_message(request.waits), now
        notices = self._attendance.notices.after(request.heard, trainer)
        waits = as_message(self.view.for_trainer(trainer, now), pb.Wait)
        return wire.encode(pb.HeartbeatReply(notices=notices, waits=waits))

    def _check_failure(self) -> None:
        if isinstance(self.failure, LostTrainerError):
            raise self.failure.with_traceback(None)

    def _leave(self, message: bytes) -> Buffers:
        request = wire.decode(pb.LeaveRequest, message)
        caller = request.caller
        self._membership.see(caller.trainer, caller.incarnation, time.monotonic())  # it need not join in order to leave
        with self._changed:
            lost = self._exchange.rounds.lacking(caller.trainer, request.sequence)
            if lost:
                self.metrics.lost.inc(lost)
                self.log.warning("a trainer leaves whose last updates are lost", trainer=caller.trainer, lost=lost)
            self._attendance.leave(caller.trainer, request.failure)
        self._wait_for_log()
        return wire.encode(pb.Empty())

    def _inventory(self, message: bytes) -> Buffers:
        self._receive(pb.CallerRequest, message)
        return wire.encode(pb.Text(text=json.dumps(self._exchange.shard.slices)))

    def _snapshot(self, message: bytes) -> Buffers:
        request = self._receive(pb.SnapshotRequest, message)
        folder = folder_for(request.folder)
        if request.snapshot:
            check_snapshot(request)
            text = self._saving.save(request)
            return wire.encode(pb.SnapshotReply(pending=text is None, text=text or ""))
        with self._changed:
            self._exchange.shard.save(str(folder))
        return wire.encode(pb.SnapshotReply())

    def _tables(self, message: bytes) -> Buffers:
        self._receive(pb.CallerRequest, message)
        found = {name: table.describe() for name, table in self._growing().items()}
        return wire.encode(pb.Text(text=json.dumps(found)))

    def _growing(self) -> dict[str, GrowingTable]:
        return {table.name: table for table in self._exchange.shard.growing}

    def _shrink(self, message: bytes) -> Buffers:
        request = self._receive(pb.ShrinkRequest, message)
        # Between two updates, for what is restored: a log or the end of a snapshot says so.
        with self._shrinking, self._changed if self._recovery is not None else nullcontext():
            known = self._shrunk.get(request.id)
            text = known or self._give_up_rows(request)
            if known is None and self._recovery is not None:
                self._recovery.record([SHRINK, message])
        self._wait_for_log()
        return wire.encode(pb.Text(text=text))

    def _give_up_rows(self, request: Any) -> str:
        """Does what a ShrinkRequest asks for, and remembers the reply."""
        gone = self._exchange.shard.shrink(list(request.tables), request.options)
        text = json.dumps(gone)
        self._shrunk = {**dict(list(self._shrunk.items())[-_KEPT:]), request.id: text}
        self.log.info("gave up rows of tables", round=self.round, **{f"rows_of_{name}": n for name, n in gone.items()})
        return text

    def _wait_for_log(self) -> None:
        """Returns when what was done so far is on disk; without the lock."""
        if self._recovery is not None:
            self._recovery.wait(self._recovery.last)

    def _receive(self, kind: Any, message: bytes) -> Any:
        """Decodes a request, and records that its trainer was seen."""
        request = wire.decode(kind, message)
        self._see(request.caller)
        return request

    def _see(self, caller: Any) -> None:
        """Records a message of a trainer.

        Raises:
            RestartedError: it has joined a predecessor of this server, which knows nobody of its number or, from an old
              snapshot, another process. Only when it joins it is clear who holds the id.
        """
        known = self._membership.members.get(caller.trainer)
        is_holder = known is not None and known.incarnation == caller.incarnation
        if known is None or known.incarnation is None or (known.must_join and not is_holder):
            raise RestartedError(f"trainer {caller.trainer} has not joined server {self.endpoint} since it started")
        self._membership.see(caller.trainer, caller.incarnation, time.monotonic())

    # Methods that other servers and `refluid status` call

    def _lost(self, message: bytes) -> Buffers:
        with self._changed:
            self._attendance.lost_elsewhere(wire.decode(pb.CallerRequest, message).caller.trainer)
        return wire.encode(pb.Empty())

    def _status(self, message: bytes) -> Buffers:
        found = {**self.metrics.status(self._exchange.awaited()), **self.view.status(time.monotonic())}
        return wire.encode(pb.Text(text=json.dumps(found)))


def describe(error: Exception) -> str:
    """The text of an exception, for the process that called."""
    if isinstance(error, KeyError):
        return str(error.args[0])
    return str(error) if isinstance(error, REFUSALS) else f"{type(error).__name__}: {error}"
