"""A trainer's membership in its job: it joins every server, sends heartbeats, and leaves.

A process that takes the place of another one goes on after the steps of that one that servers have applied. A trainer
that is killed between two servers leaves a step applied on one and not on the other. The first one then passes over as
many steps of its successor as it has more than the other.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import grpc

from refluid import flags
from refluid.errors import ServerError, ServersMissingError
from refluid.ir.modes import Mode
from refluid.ir.whereabouts import find
from refluid.log import Log
from refluid.runtime.observe.waits import Wait, as_message, from_message
from refluid.runtime.trainer.exchange_plan import Job
from refluid.runtime.trainer.waiting import WaitLog
from refluid.runtime.transport import wire
from refluid.runtime.transport.addresses import address_of
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.request import TRANSIENT
from refluid.runtime.transport.security import failed_handshake
from refluid.runtime.transport.wire import pb

_HEARTBEAT_INTERVAL = 5.0  # seconds, at most; servers may want more of them
_REMINDER_INTERVAL = 5.0  # seconds between two log lines about missing servers
_JOIN_TIMEOUT = 30.0  # seconds; a server first makes sure that nobody else holds the trainer's id
_LEAVE_TIMEOUT = 10.0


def reply_timeout() -> float:
    """Seconds that a server has to reply, FLAGS_rpc_deadline."""
    return flags.read_flag("FLAGS_rpc_deadline") / 1000


class Membership:
    """The servers that a trainer has joined.

    Args:
      error: makes the error for a problem with the server at an endpoint.
      waits: what this trainer waits for.
      step: gives the number of the training step.
    """

    def __init__(
        self,
        job: Job,
        connections: Mapping[str, Connection],
        log: Log,
        error: Callable[[str, str], ServerError],
        waits: WaitLog,
        step: Callable[[], int],
    ):
        self.caller = pb.Caller(trainer=job.trainer, incarnation=secrets.randbits(63))
        self.sequence = dict.fromkeys(job.endpoints, 0)  # the number of the last push to each server
        self._acknowledged = dict.fromkeys(job.endpoints, 0)  # the last one that it has replied to
        self._job, self._connections, self._log, self._error = job, connections, log, error
        self._waits, self._step = waits, step
        self._awaited: dict[str, tuple[float, list[Wait]]] = {}  # server -> when it said who waits for this trainer
        self.host = f"{socket.gethostname()}:{os.getpid()}"
        self.barriers = 0  # passed so far
        self.lost = 0  # updates that servers have lost when they were restarted
        self._held: set[str] = set()  # servers that have had parameters of this job
        self._reported = dict.fromkeys(job.endpoints, 0)  # up to which push its losses are counted already
        self.failure = ""  # of the job, as a server has said in reply to a heartbeat
        self._incarnations: dict[str, int] = {}  # of the servers
        self._applied: dict[str, int] = {}  # steps of this trainer, of all its processes, that a server had at a join
        self._passed_over: dict[str, int] = {}  # steps to come that a server has of a predecessor, and others have not
        self._told: dict[int, str] = {}  # the last event that was heard of another trainer
        self._noting = threading.Lock()  # threads whose requests have failed join a restarted server at the same time
        self._stopped = threading.Event()
        self._hearts: list[threading.Thread] = []  # one for each server: none waits for the reply of another

    def join_all(self) -> None:
        """Joins every server, waiting for those that are not up yet; heartbeats keep the id where it has joined."""
        try:
            self._join_missing()
        except BaseException:
            self._stopped.set()
            raise
        self._find_position()

    def _join_missing(self) -> None:
        began = reminded = time.monotonic()
        missing, pause, reason = list(self._job.endpoints), 0.05, ""
        while missing:
            for endpoint in list(missing):
                try:
                    self.join(endpoint)
                    missing.remove(endpoint)
                    self._waits.missing.pop(endpoint, None)
                except grpc.RpcError as error:
                    reason = self._waits.missing[endpoint] = self.why_unreachable(endpoint, error)
            now = time.monotonic()
            if missing and now - began > reply_timeout():
                raise ServersMissingError(self._job.trainer, missing, now - began, reason)
            if missing and now - reminded > _REMINDER_INTERVAL:
                reminded = now
                names = ",".join(missing)
                self._log.warning("waiting for servers", missing=names, seconds=now - began, reason=reason)
            if missing:
                time.sleep(pause)
                pause = min(pause * 1.5, 1.0)

    def why_unreachable(self, endpoint: str, error: grpc.RpcError) -> str:
        """Why a server cannot be reached yet.

        Raises:
          ServerError: waiting will not help.
        """
        if error.code() not in TRANSIENT:
            raise self._error(endpoint, error.details() or str(error)) from None
        unsafe = failed_handshake(error)
        if unsafe is not None:
            return unsafe
        host = address_of(endpoint).rpartition(":")[0]
        try:
            socket.getaddrinfo(host.strip("[]"), None)
        except OSError as problem:
            if endpoint in self._incarnations:  # it had an address, and may get one again
                return f"cannot resolve host {host!r}"
            raise self._error(endpoint, f"cannot resolve host {host!r}: {problem}") from None
        return "no server listens there yet" if error.code() is grpc.StatusCode.UNAVAILABLE else "no reply"

    def join(self, endpoint: str, pushes: Sequence[Any] = (), pulls: Sequence[Any] = ()) -> None:
        """Joins a server, or joins it again, and declares the tensors that will be pushed and pulled."""
        job = self._job
        request = pb.JoinRequest(
            caller=self.caller,
            protocol=wire.PROTOCOL,
            endpoint=endpoint,
            trainers=job.trainers,
            mode=job.mode.name.lower(),
            pushes=pushes,
            pulls=pulls,
            host=self.host,
            barriers=self.barriers,
            acknowledged=self._acknowledged[endpoint],
        )
        message = self._connections[endpoint].call("Join", wire.encode(request), _JOIN_TIMEOUT)
        reply = wire.decode(pb.JoinReply, message)
        with self._noting:
            self._note(endpoint, reply)

    def _note(self, endpoint: str, reply: Any) -> None:
        """Notes what a server has said at a join."""
        if reply.HasField("steps"):
            self._applied[endpoint] = reply.steps
        known = self._incarnations.get(endpoint)
        if known is None:
            self.sequence[endpoint] = self._acknowledged[endpoint] = reply.sequence
            pause = min(_HEARTBEAT_INTERVAL, reply.heartbeat_seconds or _HEARTBEAT_INTERVAL)
            beat = partial(self._send_heartbeats, endpoint, pause)
            self._hearts.append(threading.Thread(target=beat, name="heartbeat", daemon=True))
            self._hearts[-1].start()
        elif known != reply.incarnation:
            self._restarted(endpoint, reply)
        self._incarnations[endpoint] = reply.incarnation

    def replied(self, endpoint: str, *, pushed: bool) -> None:
        """A server has replied to an exchange: it has parameters, and the last push if that is what it was."""
        self._held.add(endpoint)
        if pushed:
            self._acknowledged[endpoint] = self.sequence[endpoint]

    @property
    def applied(self) -> int:
        """The steps of this trainer, of all its processes, that are applied on the servers, as they said at a join.

        Where they differ it is the least: what comes next is passed over by those that have it. Servers of a sync job
        that differ by more have lost updates in a restart; its rounds go on after the most.
        """
        steps = self._applied.values()
        if not steps:
            return 0
        lost = self._job.mode is Mode.SYNC and max(steps) - min(steps) > 1
        return max(steps) if lost else min(steps)

    def _find_position(self) -> None:
        """Finds out after which step to go on."""
        for endpoint, steps in self._applied.items():
            self._passed_over[endpoint] = max(0, steps - self.applied)
            if self._job.mode is Mode.SYNC:  # a push for every step
                self.sequence[endpoint] += max(0, self.applied - steps)
        if self.applied:
            known = ", ".join(f"{endpoint} {steps}" for endpoint, steps in self._applied.items())
            self._log.warning("goes on for an earlier process of this trainer", steps=self.applied, applied=known)

    @property
    def to_catch_up(self) -> int:
        """So many steps to come are applied on some servers and not on others: a push stands for no more of them."""
        return min(filter(None, self._passed_over.values()), default=0)

    def repeats(self, endpoint: str) -> int:
        """How many steps to come are applied on a server already, which an earlier process of this trainer pushed."""
        return self._passed_over.get(endpoint, 0)

    def count_push(self, endpoint: str, steps: int) -> None:
        """Numbers a push; one that stands for steps that the server has keeps the number of the last one.

        So does one between two steps: it is a part of what the next one stands for.
        """
        if self._passed_over.get(endpoint, 0) >= max(steps, 1):
            self._passed_over[endpoint] -= steps
        else:
            self._passed_over[endpoint] = 0
            self.sequence[endpoint] += 1

    def _restarted(self, endpoint: str, reply: Any) -> None:
        """A server was restarted; it may lack updates. One that it has not acknowledged is sent again."""
        sent = self._acknowledged[endpoint]
        lost = max(0, sent - max(reply.sequence, self._reported[endpoint]))
        if endpoint in self._held and not reply.restored:
            raise self._error(
                endpoint,
                f"it was restarted and has {reply.sequence} of {sent} updates: its parameters are lost. "
                "Servers that keep snapshots (FLAGS_rpc_server_snapshots) go on where they were",
            )
        self.lost += lost
        self._reported[endpoint] = sent
        self._log.warning("a server was restarted", server=endpoint, lost_updates=lost, sent=sent)

    def leave(self, failure: str = "") -> None:
        """Stops the heartbeats and sends Leave to every server; with the reason if this trainer has failed."""
        self._stopped.set()
        for heart in self._hearts:
            heart.join()
        for endpoint, connection in self._connections.items():
            sequence = self._acknowledged.get(endpoint, 0)
            message = wire.encode(pb.LeaveRequest(caller=self.caller, failure=failure, sequence=sequence))
            try:
                connection.call("Leave", message, _LEAVE_TIMEOUT)
            except grpc.RpcError as error:
                self._log.warning("could not leave", server=endpoint, code=error.code().name)

    def _send_heartbeats(self, endpoint: str, pause: float) -> None:
        heard = 0
        while not self._stopped.wait(pause):
            waits = as_message(self._waits.for_servers(time.monotonic()), pb.Wait)
            request = pb.HeartbeatRequest(
                caller=self.caller, heard=heard, step=self._step(), doing=doing(), waits=waits
            )
            try:
                message = self._connections[endpoint].call("Heartbeat", wire.encode(request), max(pause, 1.0))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    self.failure = self.failure or error.details() or str(error)
                continue  # the exchange that needs the server reports it
            except Exception as error:  # noqa: BLE001 - such as a file of secrets that is being replaced
                self._log.warning("could not send a heartbeat", server=endpoint, reason=str(error))
                continue
            reply = wire.decode(pb.HeartbeatReply, message)
            self._awaited[endpoint] = time.monotonic(), from_message(reply.waits)
            for notice in reply.notices:
                heard = notice.number
                self._hear(notice)

    def _hear(self, notice: Any) -> None:
        """Logs what a server has noticed of another trainer, unless another server has said the same."""
        if self._told.get(notice.trainer) != notice.event:
            self._told[notice.trainer] = notice.event
            self._log.warning(notice.text)

    def awaited(self, now: float) -> list[Wait]:
        """Who waits for this trainer, as servers have said with their last replies to heartbeats."""
        return [
            replace(wait, seconds=wait.seconds + now - when)
            for when, waits in list(self._awaited.values())
            if now - when < 2 * _HEARTBEAT_INTERVAL
            for wait in waits
        ]


def doing() -> str:
    """The line of the script where its main thread is."""
    main = threading.main_thread().ident
    return "" if main is None else find(main).line
