"""What a listener lets in, before anything of it is read: so many calls, streams and bytes, and not more.

A call or an open stream takes a thread, so one connection gets a few of them, all connections together leave some for
heartbeats and other control calls, and the rest is told to come back (RESOURCE_EXHAUSTED, which trainers do). A message
above `SMALL` declares its size; it is read once there is room for it and its reply among all such messages, the size of
FLAGS_rpc_max_inflight_mb. So the memory of messages does not grow with the number of callers: gRPC's flow control stops
those that wait.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import grpc

from refluid import flags
from refluid.runtime.transport.connection import MAX_STREAMS, SIZE_KEY, SMALL
from refluid.runtime.transport.memory import give_back_freed_memory
from refluid.runtime.transport.refusals import BUSY, MALFORMED, OVERSIZED, TOO_MANY, Refusals, told

CONTROL = frozenset({"Heartbeat", "Leave", "Status", "Ping", "Lost", "Cut"})  # short, and never turned away
STREAMS, CALLS = 2 * MAX_STREAMS, 4 * MAX_STREAMS  # of one connection; those that just ended may still count
_WAIT = 2.0  # seconds for room; the caller waits longer than that, but not on a thread of this process
_KEPT = 8  # malloc keeps an eighth of the budget for the next messages
_SMALLEST, _FEW = 64 << 10, 16  # bytes of a chunk on average, but for a few
_MB = 1 << 20


def budget_from_flags() -> int:
    """How many bytes of large messages may be in flight: FLAGS_rpc_max_inflight_mb, or a quarter of the memory."""
    chosen = flags.read_flag("FLAGS_rpc_max_inflight_mb")
    return chosen * _MB if chosen > 0 else max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4, 64 * _MB)


class Budget:
    """Room for so many bytes, given to one message after the other."""

    def __init__(self, size: int):
        self.size, self.held = size, 0
        self._freed = 0  # since malloc was asked what it keeps
        self._changed = threading.Condition()

    def take(self, count: int, seconds: float) -> bool:
        """Waits for room; False if there is none in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.held + count <= self.size, seconds):
                return False
            self.held += count
            return True

    def give_back(self, count: int) -> None:
        """Lets others have it."""
        with self._changed:
            self.held -= count
            self._changed.notify_all()
            self._freed += count
            looks = self._freed > self.size // _KEPT
            if looks:
                self._freed = 0
        if looks:
            give_back_freed_memory(self.size // _KEPT)


class NoRoomError(RuntimeError):
    """There is no room for a reply now; the caller tries again."""


class Room:
    """Room for the reply to one call.

    Args:
      declared: how much of the budget the call has already; a small reply needs none.
    """

    def __init__(self, budget: Budget, declared: int = 0):
        self._budget, self._free, self._taken = budget, max(declared, SMALL), 0
        self._closed = False
        self._changing = threading.Lock()

    def take(self, count: int) -> None:
        """Makes room for so many bytes in all.

        Raises:
          ValueError: there will never be so much.
          NoRoomError: there is not so much now.
        """
        if count > max(self._budget.size, self._free):
            allowed = f"{self._budget.size >> 20} MB are allowed, see FLAGS_rpc_max_inflight_mb"
            raise ValueError(f"a reply takes {count >> 20} MB; {allowed}")
        with self._changing:
            more = count - self._free - self._taken
            if more <= 0:
                return
            if self._closed or not self._budget.take(more, 0):
                held = f"{self._budget.held >> 20} MB of messages are in flight"
                raise NoRoomError(f"{held}, and there is no room for a reply of {count >> 20} MB now")
            self._taken += more

    def give_back(self) -> None:
        """Gives back what was taken."""
        with self._changing:
            taken, self._taken = self._taken, 0
        if taken:
            self._budget.give_back(taken)

    def close(self) -> None:
        """Gives it back for good: the call has ended."""
        with self._changing:
            self._closed = True
        self.give_back()


_room: ContextVar[Room | None] = ContextVar("room", default=None)


def make_room(count: int) -> None:
    """Makes room for a reply of so many bytes to the call that this thread serves, before it takes memory."""
    room = _room.get()
    if room is not None:
        room.take(count)


@contextmanager
def _serving(room: Room) -> Iterator[Room]:
    token = _room.set(room)
    try:
        yield room
    finally:
        _room.reset(token)


class Admission:
    """What one listener has let in.

    Args:
      who: names the listener in messages.
      threads: of its pool; an eighth of them is left to control calls.
    """

    def __init__(self, who: str, threads: int, refusals: Refusals):
        self.budget = Budget(budget_from_flags())
        self._who, self._refusals = who, refusals
        self._most = threads - max(2, threads // 8)
        self._open: Counter[tuple[str, bool]] = Counter()  # (connection, is a stream) -> how many
        self._all = 0
        self._changing = threading.Lock()

    @contextmanager
    def call(self, method: str, context: grpc.ServicerContext, stream: bool = False) -> Iterator[None]:
        """Lets a call or a stream in, and counts it until it ends."""
        if method in CONTROL and not stream:
            yield
            return
        key = context.peer(), stream
        with self._changing:
            admitted = self._all < self._most and self._open[key] < (STREAMS if stream else CALLS)
            if admitted:
                self._all += 1
                self._open[key] += 1
        if not admitted:
            what = "streams" if stream else "calls"
            self._refuse(TOO_MANY, method, context, f"too many {what} at once: {self._open[key]} of this connection")
        try:
            yield
        finally:
            with self._changing:
                self._all -= 1
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]

    @contextmanager
    def replying(self, method: str, context: grpc.ServicerContext, room: Room) -> Iterator[None]:
        """While a call is served: its reply has this room."""
        try:
            with _serving(room):
                yield
        except NoRoomError as error:
            self._refuse(BUSY, method, context, str(error))

    def small(self, message: bytes, method: str, context: grpc.ServicerContext) -> bytes:
        """A message that was received whole."""
        if len(message) > SMALL:
            self._refuse(OVERSIZED, method, context, f"a message of {len(message)} bytes must travel in chunks")
        return message

    @contextmanager
    def large(
        self, received: Iterator[bytes], method: str, context: grpc.ServicerContext
    ) -> Iterator[tuple[bytes, Room]]:
        """Reads a message of chunks, when there is room for it and its reply; the room is kept to the end."""
        declared = self._declared(method, context)
        if not self.budget.take(declared, min(_WAIT, context.time_remaining() or _WAIT)):
            text = f"{self.budget.held >> 20} MB of messages are in flight, and there is no room for more now"
            self._refuse(BUSY, method, context, text)
        room = Room(self.budget, declared)
        try:
            yield self._read(received, declared, method, context), room
        finally:
            room.close()
            self.budget.give_back(declared)

    def _declared(self, method: str, context: grpc.ServicerContext) -> int:
        text: Any = dict(context.invocation_metadata()).get(SIZE_KEY, "")
        if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 18:
            self._refuse(MALFORMED, method, context, f"a message of chunks has no size in its metadata ({SIZE_KEY})")
        if int(text) > self.budget.size:
            allowed = f"{self.budget.size >> 20} MB are allowed, see FLAGS_rpc_max_inflight_mb"
            self._refuse(OVERSIZED, method, context, f"a message and its reply take {int(text) >> 20} MB; {allowed}")
        return int(text)

    def _read(self, received: Iterator[bytes], declared: int, method: str, context: grpc.ServicerContext) -> bytes:
        found: list[bytes] = []
        size = 0
        most = declared // _SMALLEST + _FEW
        for chunk in received:
            size += len(chunk)
            if size > declared:
                self._refuse(OVERSIZED, method, context, f"a message is larger than the {declared} bytes it declares")
            if len(found) == most:  # each takes some memory of its own
                self._refuse(MALFORMED, method, context, f"a message of {declared} bytes has more than {most} chunks")
            found.append(chunk)
        return b"".join(found)

    def _refuse(self, reason: str, method: str, context: grpc.ServicerContext, text: str) -> NoReturn:
        self._refusals.add(reason, context.peer(), method=method, problem=text)
        context.abort(_CODES.get(reason, grpc.StatusCode.INVALID_ARGUMENT), told(f"{self._who}: {text}"))
        raise AssertionError("abort raises")


_CODES = {TOO_MANY: grpc.StatusCode.RESOURCE_EXHAUSTED, BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED}
