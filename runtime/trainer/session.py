"""A trainer's side of the conversation: one session per process, with a connection to every server.

A session knows who this trainer is and where it is in the job; what is sent and when is decided by the exchanges.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from refluid import flags
from refluid.errors import ServerError, ServersMissingError
from refluid.log import Log
from refluid.runtime.modes import Mode
from refluid.runtime.observe.trainer_metrics import TrainerMetrics
from refluid.runtime.transport import wire
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.memory import keep_freed_memory
from refluid.runtime.transport.request import Asked, Talk
from refluid.runtime.transport.wire import Value, pb

STEP = pb.ExchangeRequest.STEP
WAIT = pb.ExchangeRequest.WAIT
OFFER = pb.ExchangeRequest.OFFER
START = pb.ExchangeRequest.START
ROWS = pb.ExchangeRequest.ROWS
READ = pb.ExchangeRequest.READ

_BEAT = 5.0  # seconds between two signs of life
_REMIND = 5.0  # seconds between two remarks about missing servers
_JOIN_TIMEOUT = 30.0  # seconds; a server first makes sure that nobody else holds the trainer's id
_TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True)
class Job:
    """Which job this process is a trainer of."""

    trainer: int
    trainers: int
    endpoints: tuple[str, ...]
    mode: Mode


@dataclass
class Message:
    """What goes to one server in an exchange, and what is wanted from it."""

    pushed: Mapping[str, Value]
    wanted: Sequence[str] = ()
    expected: int = 0  # bytes of the answer, about


class Session:
    """This trainer, connected to the servers of its job."""

    def __init__(self, job: Job):
        self.job = job
        keep_freed_memory()
        self.incarnation = secrets.randbits(63)
        self.log = Log(role="trainer", trainer=job.trainer)
        self.watch = TrainerMetrics(
            job.trainer, job.mode.name.lower(), lambda: self.step, self._queued, self._staleness
        )
        sent, received = self.watch.sent, self.watch.received
        self.connections = {endpoint: Connection(endpoint, sent, received) for endpoint in job.endpoints}
        self.sequence = dict.fromkeys(job.endpoints, 0)
        self.step = 0  # training steps taken, for messages
        self.kept: set[str] = set()  # what is this trainer's own, though servers hold its first value
        self.started_with: dict[str, Any] = {}  # GEO: the parameters that this trainer received first
        self._servers: dict[str, int] = {}  # their incarnations
        self._caller = pb.Caller(trainer=job.trainer, incarnation=self.incarnation)
        self.communicators: list[Any] = []  # async: the exchanges that go on behind the steps
        self._left = False
        self._stop = threading.Event()
        self._on_leave: list[Callable[[], None]] = []
        self._on_flush: list[Callable[[], None]] = []
        self._making = threading.Lock()
        self._once: dict[tuple[int, ...], tuple[Sequence[Any], Any]] = {}
        self._meetings = 0
        self._join_all()
        self._metrics_endpoint = self.watch.serve()
        # Several threads of a trainer may be talking to all servers: it trains, sends and receives. A talk that goes on
        # in the background needs a second thread for its call.
        self._pool = ThreadPoolExecutor(2 * 3 * len(job.endpoints), "exchange")
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._heart.start()

    def once(self, ops: Sequence[Any], make: Callable[[], Any]) -> Any:
        """What ``make`` makes for these operators, made once.

        A program is compiled again for other feed shapes, but its queues and snapshots are the same.
        """
        key = tuple(id(op) for op in ops)
        with self._making:  # threads may run a program for the first time together
            if key not in self._once:
                self._once[key] = ops, make()  # the operators are kept, so that nobody else gets their ids
        return self._once[key][1]

    # Getting to know the servers

    def _join_all(self) -> None:
        """Waits until every server answers, and says which do not."""
        began = time.monotonic()
        patience = self._patience()
        missing, reminded, pause = list(self.job.endpoints), began, 0.05
        reason = ""
        while missing:
            for endpoint in list(missing):
                try:
                    self._join(endpoint)
                    missing.remove(endpoint)
                except grpc.RpcError as error:
                    reason = self._why_unreachable(endpoint, error)
            now = time.monotonic()
            if missing and now - began > patience:
                raise ServersMissingError(self.job.trainer, missing, now - began, reason)
            if missing and now - reminded > _REMIND:
                reminded = now
                self.log.warning("waiting for servers", missing=",".join(missing), seconds=now - began, reason=reason)
            if missing:
                time.sleep(pause)
                pause = min(pause * 1.5, 1.0)

    def _why_unreachable(self, endpoint: str, error: grpc.RpcError) -> str:
        """A reason to go on waiting; what waiting cannot mend is raised."""
        if error.code() not in _TRANSIENT:
            raise self._error(endpoint, error.details() or str(error)) from None
        host = endpoint.rpartition(":")[0]
        try:
            socket.getaddrinfo(host, None)
        except OSError as problem:
            raise self._error(endpoint, f"the host {host!r} is not known here: {problem}") from None
        return "no server listens there yet" if error.code() is grpc.StatusCode.UNAVAILABLE else "no answer"

    def _join(self, endpoint: str, pushes: Sequence[Any] = (), pulls: Sequence[Any] = ()) -> None:
        job = self.job
        request = pb.JoinRequest(
            caller=self._caller,
            protocol=wire.PROTOCOL,
            endpoint=endpoint,
            trainers=job.trainers,
            mode=job.mode.name.lower(),
            pushes=pushes,
            pulls=pulls,
            host=f"{socket.gethostname()}:{os.getpid()}",
        )
        message = self.connections[endpoint].call("Join", wire.encode(request), _JOIN_TIMEOUT)
        reply = wire.decode(pb.JoinReply, message)
        known = self._servers.get(endpoint)
        if known is not None and known != reply.incarnation and reply.sequence < self.sequence[endpoint] - 1:
            raise self._error(
                endpoint,
                f"it was restarted and knows {reply.sequence} of the {self.sequence[endpoint]} updates sent: "
                "its parameters are lost",
            )
        if known is None:
            self.sequence[endpoint] = reply.sequence
        self._servers[endpoint] = reply.incarnation

    def agree(self, pushes: Mapping[str, Sequence[Any]], pulls: Mapping[str, Sequence[Any]]) -> None:
        """Makes sure that every server has what an exchange will send and ask for, as the trainer describes it."""
        for endpoint in {*pushes, *pulls}:
            try:
                self._join(endpoint, pushes.get(endpoint, ()), pulls.get(endpoint, ()))
            except grpc.RpcError as error:
                raise self._error(endpoint, error.details() or str(error)) from None

    # Talking

    def push(self, messages: Mapping[str, Message], steps: int = 1) -> dict[str, dict[str, Value]]:
        """Pushes gradients or differences and returns what was wanted, as the mode has it."""
        for endpoint in messages:
            self.sequence[endpoint] += 1
        return self.exchange(STEP, messages, steps)

    def exchange(self, purpose: int, messages: Mapping[str, Message], steps: int = 0) -> dict[str, dict[str, Value]]:
        """One message to each server, all under way at the same time; the answers' tensors by endpoint."""
        began = time.perf_counter()
        talks: dict[str, Talk] = {}
        try:
            for endpoint, message in messages.items():
                said = endpoint, purpose, message, steps
                talks[endpoint] = Talk(partial(self._ask, *said), partial(self._finish, *said), self._pool)
            found = {endpoint: talk.result() for endpoint, talk in talks.items()}
        finally:
            for talk in talks.values():
                talk.cancel()
        pulled = purpose == ROWS or any(message.wanted for message in messages.values())
        self.watch.exchanged(pushed=purpose == STEP, pulled=pulled, seconds=time.perf_counter() - began)
        return found

    def _ask(self, endpoint: str, purpose: int, message: Message, steps: int) -> Asked:
        """Sends a message; what it gives has a ``result``, the answer."""
        buffers, patience = self._encode(endpoint, purpose, message, steps), self._patience()
        connection, expected = self.connections[endpoint], message.expected
        try:
            question = connection.ask("Exchange", buffers, patience, expected)
            return question or self._pool.submit(connection.call, "Exchange", buffers, patience, expected)
        except RuntimeError:  # Python is ending, and starts no threads any more
            answer: Future[bytes] = Future()
            try:
                answer.set_result(connection.call("Exchange", buffers, patience, expected))
            except grpc.RpcError as error:
                answer.set_exception(error)
            return answer

    def _encode(self, endpoint: str, purpose: int, message: Message, steps: int) -> list[Any]:
        header = pb.ExchangeRequest(
            caller=self._caller,
            purpose=purpose,
            sequence=self.sequence[endpoint],
            steps=steps,
            pushed=[wire.describe(name, value) for name, value in message.pushed.items()],
            wanted=message.wanted,
        )
        return wire.encode(header, message.pushed.values())

    def _finish(
        self, endpoint: str, purpose: int, message: Message, steps: int, question: Asked, began: float
    ) -> dict[str, Value]:
        """The tensors in a server's answer to a question that was asked at the time ``began``.

        Asks again while the server says "not yet", and sends again when the line broke.
        """
        pause = 0.1
        while True:
            try:
                answer = question.result()
            except grpc.RpcError as error:
                if error.code() not in _TRANSIENT or time.monotonic() - began > self._patience():
                    raise self._error(endpoint, error.details() or str(error)) from None
                self.log.warning("a server does not answer, trying again", server=endpoint, step=self.step)
                self.watch.retried()
                time.sleep(pause * (1 + random.random()))
                pause = min(2 * pause, 2.0)
                self._rejoin(endpoint)
                question = self._ask(endpoint, purpose, message, steps)
                continue
            reply = wire.decode(pb.ExchangeReply, answer)
            if not reply.pending:
                return wire.tensors(reply.tensors, answer)
            began = time.monotonic()
            if purpose == STEP:  # it is there; only its update is waited for
                question = self._ask(endpoint, WAIT, Message({}, message.wanted, message.expected), steps)
            else:
                question = self._ask(endpoint, purpose, message, steps)

    def _rejoin(self, endpoint: str) -> None:
        try:
            self._join(endpoint)
        except grpc.RpcError as error:
            self._why_unreachable(endpoint, error)

    def barrier(self) -> None:
        """Waits until every trainer that has not left has come to this line as often as this one."""
        self._meetings += 1
        endpoint = self.job.endpoints[0]
        header = pb.ExchangeRequest(caller=self._caller, sequence=self._meetings)
        while True:
            try:
                reply = wire.decode(pb.ExchangeReply, self.tell(endpoint, "Barrier", header))
            except grpc.RpcError as error:
                raise self._error(endpoint, error.details() or str(error)) from None
            if not reply.pending:
                return

    def status(self) -> list[dict[str, Any]]:
        """What each server says of itself."""
        messages = [self.tell(endpoint, "Status", pb.Empty()) for endpoint in self.job.endpoints]
        return [json.loads(wire.decode(pb.Text, message).text) for message in messages]

    def _queued(self) -> int:
        return sum(communicator.queued for communicator in self.communicators)

    def _staleness(self) -> int:
        return max((communicator.staleness for communicator in self.communicators), default=0)

    def tell(self, endpoint: str, method: str, header: Any) -> Any:
        """A call without tensors."""
        return self.connections[endpoint].call(method, wire.encode(header), self._patience())

    @property
    def caller(self) -> Any:
        """Who is calling, for headers."""
        return self._caller

    # Leaving

    def on_leave(self, action: Callable[[], None]) -> None:
        """Registers what must happen before this trainer leaves: queues to empty, threads to end."""
        self._on_leave.append(action)

    def on_flush(self, action: Callable[[], None]) -> None:
        """Registers how to send what is waiting to be sent."""
        self._on_flush.append(action)

    def flush(self) -> None:
        """Returns when servers have all that this trainer has computed."""
        for action in self._on_flush:
            action()

    def leave(self) -> None:
        """Tells every server that this trainer is done. Calling it again does nothing."""
        global _session
        if self._left:
            return
        self._left = True
        for action in self._on_leave:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - servers must hear the goodbye all the same
                self.log.error("the last gradients are lost", reason=str(error))
        self._stop.set()
        self._heart.join()
        self._pool.shutdown()
        for endpoint, connection in self.connections.items():
            try:
                connection.call("Leave", wire.encode(pb.CallerRequest(caller=self._caller)), 10.0)
            except grpc.RpcError as error:
                self.log.warning("server did not hear the goodbye", server=endpoint, code=error.code().name)
            connection.close()
        if self._metrics_endpoint is not None:
            self._metrics_endpoint.close()
        if _session is self:
            _session = None

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT):
            for connection in self.connections.values():
                try:
                    connection.call("Heartbeat", wire.encode(pb.CallerRequest(caller=self._caller)), _BEAT)
                except grpc.RpcError:
                    continue  # the exchange that needs the server will tell

    def _patience(self) -> float:
        return flags.read_flag("FLAGS_rpc_deadline") / 1000

    def _error(self, endpoint: str, problem: str) -> ServerError:
        return ServerError(self.job.trainer, self.step, endpoint, problem.removeprefix(f"server {endpoint}: "))


_session: Session | None = None
_beginning = threading.Lock()


def session_of(job: Job) -> Session:
    """The session of this process; made, and connected, on first use."""
    global _session
    with _beginning:
        if _session is None:
            _session = Session(job)
        found = _session
    if found.job != job:
        raise RuntimeError(
            f"this process already is trainer {found.job.trainer} of a job with servers "
            f"{', '.join(found.job.endpoints)}; close its executor before another one begins"
        )
    return found


def current() -> Session | None:
    """The session of this process, if it has one."""
    return _session


@atexit.register
def _leave_at_exit() -> None:
    """A script that ends without exe.close() must not be waited for."""
    if _session is not None:
        _session.leave()
