"""The trainers of a job as a group: each listens for the others, and calls them directly.

Members call `gather` in the same order, as ranks of MPI do. A member that ends, fails or hangs is named in the error
that all others raise: one that fails says so, and the others ask those they wait for whether they are alive.
"""

from __future__ import annotations

import atexit
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import grpc

from refluid.errors import PeerError
from refluid.log import Log
from refluid.runtime.trainer.mailbox import Mailbox, Note
from refluid.runtime.transport import wire
from refluid.runtime.transport.connection import MAILBOX, Connection
from refluid.runtime.transport.listener import Handler, open_mailbox
from refluid.runtime.transport.refusals import MALFORMED, Refusals, told
from refluid.runtime.transport.request import TRANSIENT, RetryPolicy
from refluid.runtime.transport.wire import pb

SILENCE = 10.0  # seconds; a trainer that was there and does not reply for so long is gone
COMING = 900.0  # seconds that the others have to come to the first gather
_ASK_EVERY = 1.0  # seconds between two questions whether somebody is alive
_REMIND_EVERY = 5.0  # seconds between two log lines about who is awaited
_REPLY_TIMEOUT = 30.0  # seconds for one chunk; a reply needs no work
_GRACE = 5.0  # seconds that calls of others have to end when a member closes
_LAST_WORDS = 2.0  # seconds to tell the others of a failure


class TrainerGroup:
    """This trainer among all trainers of its job.

    Args:
      trainer: the number of this trainer.
      trainers: how many there are.
      address: where to listen; with port 0, any free one.
      meet: gives everybody's address in exchange for the one of this trainer.
    """

    def __init__(self, trainer: int, trainers: int, address: str, meet: Callable[[str], Sequence[str]]):
        self.trainer, self.trainers = trainer, trainers
        self.others = [each for each in range(trainers) if each != trainer]
        self.mailbox = Mailbox(trainer, trainers)
        self.caller = pb.Caller(trainer=trainer, incarnation=secrets.randbits(63))
        self._log = Log(role="trainer", trainer=trainer)
        self._number = 0
        self._closed = threading.Event()
        refusals = lambda: self._listener.refusals  # noqa: E731
        handlers = {name: _handler(method, refusals) for name, method in self.mailbox.methods.items()}
        self._listener = open_mailbox(address, handlers, threads=2 * min(trainers, 16) + 4)
        self._pool = ThreadPoolExecutor(min(trainers - 1, 16), "trainer-group")
        self._connections: dict[int, Connection] = {}
        atexit.register(self.close)
        try:
            self.endpoints = list(meet(f"{address.rpartition(':')[0]}:{self._listener.port}"))
            assert len(self.endpoints) == trainers
            self._connections = {each: Connection(self.endpoints[each], service=MAILBOX) for each in self.others}
        except BaseException:
            self.close()
            raise

    def gather(self, what: str, text: str = "") -> list[str]:
        """The texts of all trainers, in their order; returns when everybody has called it, for the same ``what``.

        Raises:
          PeerError: another trainer has failed, is gone, or gathers something else.
        """
        self._number += 1
        note = wire.encode(pb.NoteRequest(caller=self.caller, number=self._number, what=what, text=text))
        self._tell_all(note)
        notes = self._await_notes()
        for other, found in notes.items():
            if found.what != what:
                raise self._error(other, f"is at {found.what!r}, and this one at {what!r}: all must do the same")
        return [text if each == self.trainer else notes[each].text for each in range(self.trainers)]

    @property
    def number(self) -> int:
        """The number of the last gather."""
        return self._number

    def call(self, other: int, method: str, buffers: Sequence[Any]) -> None:
        """Sends a message to another trainer, again and again while it may be alive."""
        connection, policy = self._connections[other], RetryPolicy(SILENCE)
        began = reminded = time.monotonic()
        attempt = 0
        while True:
            self._check_failures()
            try:
                connection.call(method, buffers, _REPLY_TIMEOUT)
                self.mailbox.met.add(other)
                return
            except grpc.RpcError as error:
                if error.code() not in TRANSIENT:
                    raise self._error(other, f"refuses: {error.details()}") from None
            now = time.monotonic()
            if now - began >= self._patience(other):
                raise self._error(other, f"has not replied for {now - began:.0f} s: it has ended or cannot be reached")
            if now - reminded >= _REMIND_EVERY:
                reminded = now
                self._log.warning("waiting for another trainer", at=self.endpoints[other], seconds=now - began)
            attempt += 1
            if self._closed.wait(policy.pause(attempt)):
                raise self._error(other, "was not reached before this trainer gave up")

    def fail(self, reason: str) -> None:
        """Tells all others that this trainer has failed, as far as they can be reached."""
        note = wire.encode(pb.NoteRequest(caller=self.caller, failure=reason))

        def tell(other: int) -> None:
            try:
                self._connections[other].call("Note", note, _LAST_WORDS)
            except grpc.RpcError as error:
                self._log.debug("another trainer did not hear of the failure", of=other, reason=error.code().name)

        with ThreadPoolExecutor(min(self.trainers - 1, 16)) as threads:  # those of the group may be waiting for others
            wait([threads.submit(tell, other) for other in self._connections])

    def close(self) -> None:
        """Ends all connections and stops listening. Calling it again does nothing."""
        if self._closed.is_set():
            return
        self._closed.set()
        atexit.unregister(self.close)
        for connection in self._connections.values():
            connection.close()
        self._pool.shutdown(cancel_futures=True)
        self._listener.stop(_GRACE).wait()

    @property
    def is_closed(self) -> bool:
        """Whether this group is of no more use."""
        return self._closed.is_set()

    def _tell_all(self, note: Sequence[Any]) -> None:
        calls = [self._pool.submit(self.call, other, "Note", note) for other in self.others]
        done, _ = wait(calls, return_when=FIRST_EXCEPTION)
        for call in done:
            call.result()

    def _await_notes(self) -> dict[int, Note]:
        began = reminded = time.monotonic()
        while (notes := self.mailbox.wait(self._number, _ASK_EVERY)) is None:
            self._check_failures()
            missing = self.mailbox.missing(self._number)
            ping = wire.encode(pb.CallerRequest(caller=self.caller))
            for answer in [self._pool.submit(self.call, other, "Ping", ping) for other in missing]:
                answer.result()
            now = time.monotonic()
            if now - reminded >= _REMIND_EVERY:
                reminded = now
                self._log.warning("waiting for other trainers", awaited=missing, seconds=now - began)
        return notes

    def _patience(self, other: int) -> float:
        """How long a trainer may be silent: one that has not been here yet may still be reading its data."""
        return SILENCE if other in self.mailbox.met else COMING

    def _check_failures(self) -> None:
        for other, reason in list(self.mailbox.failures.items()):
            raise self._error(other, f"has failed: {reason}")

    def _error(self, other: int, problem: str) -> PeerError:
        return PeerError(self.trainer, other, self.endpoints[other], problem)


def _handler(method: Callable[[bytes], list[Any]], refusals: Callable[[], Refusals]) -> Handler:
    def handle(message: bytes, context: grpc.ServicerContext) -> Sequence[Any]:
        try:
            return method(message)
        except wire.MalformedError as error:
            refusals().add(MALFORMED, context.peer(), problem=str(error))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, told(str(error)))
        except (*wire.BAD_MESSAGE, KeyError) as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, told(str(error)))
        raise AssertionError("abort raises")

    return handle
