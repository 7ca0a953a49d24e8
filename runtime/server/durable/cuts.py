"""A common snapshot of all servers: of every trainer, the snapshot of each server has the same pushes.

A push goes to all servers, which apply it at different times. So the first server has all of them fix their state, one
after the other (BEGIN), and hears which pushes each has. The last of these, by trainer, are where the snapshot ends. A
server that lacks some adds what it does until it has them (END); what goes beyond is left out. Nobody waits: a push
that is not part of the snapshot is applied as usual, and rows and variables are copied before it changes them.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from refluid.runtime.transport.wire import pb

_ID = re.compile(r"[0-9a-f]{32}")
_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # seconds between two attempts; the last one is repeated
_MOST = 256 << 20  # bytes of what a server does between the beginning of a snapshot and its end


class CutError(RuntimeError):
    """There will be no common snapshot this time; the message says why."""


class Tail:
    """What one server does from the beginning of a snapshot to its end. Used with the lock of updates held."""

    def __init__(self) -> None:
        self._records: list[Sequence[Any]] = []  # as buffers
        self.is_open, self._bytes = True, 0

    @property
    def is_too_long(self) -> bool:
        """Whether it was given up because it took too much memory."""
        return self._bytes > _MOST

    def add(self, buffers: Sequence[Any]) -> None:
        """Adds a record, unless it has ended."""
        if not self.is_open:
            return
        self._records.append(buffers)
        self._bytes += sum(memoryview(buffer).nbytes for buffer in buffers)
        if self.is_too_long:
            self._records, self.is_open = [], False

    def end(self) -> None:
        """Nothing is added from now on."""
        self.is_open = False

    def take(self) -> list[bytes]:
        """Its records, which it forgets."""
        records, self._records = self._records, []
        return [b"".join(buffers) for buffers in records]


Ask = Callable[[str, Any], Any]  # sends a CutRequest to an endpoint and returns its CutReply


class Coordinator:
    """The part of the first server.

    Args:
      endpoints: of all servers.
      ask: sends a request to one of them; raises if it cannot be reached or refuses.
    """

    def __init__(self, endpoints: Iterable[str], ask: Ask):
        self._endpoints, self._ask = list(endpoints), ask
        self.stopped = threading.Event()

    def cut(self, number: int, patience: float) -> None:
        """Has all servers write a snapshot of this number.

        Raises:
          CutError: one of them was not ready within ``patience`` seconds, or could not complete its files.
        """
        end = time.monotonic() + patience
        request = pb.CutRequest(id=secrets.token_hex(16), number=number)
        try:
            until: dict[int, int] = {}
            for endpoint in self._endpoints:
                reply = self._begin(endpoint, request, end)
                until |= {trainer: max(last, until.get(trainer, 0)) for trainer, last in reply.applied.items()}
            for trainer, last in until.items():
                request.until[trainer] = last
            self._end(request)
        except BaseException:
            self._tell(request, pb.CutRequest.ABANDON)
            raise
        self._tell(request, pb.CutRequest.DONE)

    def _begin(self, endpoint: str, request: Any, end: float) -> Any:
        """Has a server begin as soon as it can be reached and is ready."""
        request.phase, attempt = pb.CutRequest.BEGIN, 0
        while True:
            try:
                reply = self._ask(endpoint, request)
                if not reply.pending:
                    return reply
                problem = reply.text
            except Exception as error:  # noqa: BLE001 - raised when there is no more time
                problem = str(error)
            if time.monotonic() > end:
                raise CutError(f"server {endpoint}: {problem}")
            self._pause(attempt)
            attempt += 1

    def _end(self, request: Any) -> None:
        """Tells all servers where the snapshot ends; returns when all have complete files, however long they write."""
        request.phase, waiting, attempt = pb.CutRequest.END, list(self._endpoints), 0
        while True:
            for endpoint in list(waiting):
                try:
                    if not self._ask(endpoint, request).pending:
                        waiting.remove(endpoint)
                except Exception as error:
                    raise CutError(f"server {endpoint}: {error}") from error
            if not waiting:
                return
            self._pause(attempt)
            attempt += 1

    def _pause(self, attempt: int) -> None:
        if self.stopped.wait(_PAUSES[min(attempt, len(_PAUSES) - 1)]):
            raise CutError("the job is over")

    def _tell(self, request: Any, phase: Any) -> None:
        request.phase = phase
        for endpoint in self._endpoints:
            try:
                self._ask(endpoint, request)
            except Exception:  # noqa: BLE001 - it hears of the next one
                continue


def check_name(request: Any) -> None:
    """Refuses a CutRequest whose name could be part of a path.

    Raises:
      ValueError: it is not what servers draw.
    """
    if not _ID.fullmatch(request.id) or not 0 < request.number < 10**12:
        raise ValueError(f"a snapshot has a number and is named by 32 hexadecimal digits, not by {request.id[:64]!r}")
