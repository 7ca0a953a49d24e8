"""gRPC underneath: how one message gets to a server and its answer back.

A message is one gRPC message if it is small, and a stream of chunks if it is large; the two ends of a call see buffers
and bytes either way. Small messages of every step go through a line that stays open, which costs half of what calls do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import grpc

from refluid.errors import ServerBusyError
from refluid.runtime.observe.metrics import Counter

SERVICE = "refluid.runtime.ParameterServer"
IN_CHUNKS, IN_TURN = "InChunks", "InTurn"
LARGE = 32 << 20  # bytes; what is larger travels in chunks
CHUNK = 4 << 20
SMALL = 1 << 20  # bytes; what is larger gains nothing from an open line
LINES = 4  # that a connection may have open, as each takes a thread of the server's
_LINE_AGE = 0.25  # of a timeout: gRPC limits the life of a line, not the time of an answer

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.so_reuseport", 0),  # two servers on one port would share the calls between them
    ("grpc.enable_http_proxy", 0),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.initial_reconnect_backoff_ms", 100),
]

Handler = Callable[[bytes, grpc.ServicerContext], Sequence[Any]]


def size_of(buffers: Sequence[Any]) -> int:
    """How many bytes a message has."""
    return sum(len(buffer) for buffer in buffers)


class Connection:
    """How this process talks to one server; ``sent`` and ``received`` count the bytes."""

    def __init__(self, endpoint: str, sent: Counter | None = None, received: Counter | None = None):
        self.endpoint = endpoint
        self._sent, self._received = sent or Counter(), received or Counter()
        self._channel = grpc.insecure_channel(endpoint, options=_OPTIONS)
        self._methods: dict[str, Any] = {}
        self._idle: dict[str, list[_Line]] = {}
        self._choosing = threading.Lock()
        self._free_lines = threading.Semaphore(LINES)
        self._closed = False

    def call(self, method: str, buffers: Sequence[Any], timeout: float, expected: int = 0) -> bytes:
        """Sends a message and waits for the answer; ``expected`` is its size, if it is known to be large."""
        size = self._count(buffers)
        if max(size, expected) > LARGE:
            answer = b"".join(self._method(method + IN_CHUNKS)(chunks(buffers), timeout=timeout, wait_for_ready=False))
        else:
            answer = self._method(method)(b"".join(buffers), timeout=timeout, wait_for_ready=False)
        self._received.add(len(answer))
        return answer

    def ask(self, method: str, buffers: Sequence[Any], timeout: float, expected: int = 0) -> Question | None:
        """Sends a message through an open line; None if there is none to be had, or too much to say for one."""
        if max(size_of(buffers), expected) > SMALL or not self._free_lines.acquire(blocking=False):
            return None
        try:
            line = self._line(method, timeout)
        except BaseException:
            self._free_lines.release()
            raise
        self._count(buffers)
        line.say(b"".join(buffers))
        return Question(self, method, line)

    def answered(self, method: str, line: _Line, answer: bytes | None) -> None:
        """Another line may be used; this one, too, if there was an answer."""
        if answer is None or self._closed:
            line.drop()
        else:
            self._received.add(len(answer))
            self._idle[method].append(line)
        self._free_lines.release()

    def _line(self, method: str, timeout: float) -> _Line:
        """An open line that nobody uses."""
        with self._choosing:
            idle = self._idle.setdefault(method, [])
            while idle:
                line = idle.pop()
                if line.is_useful:
                    return line
                line.close()
        return _Line(self._method(method + IN_TURN), timeout)

    def _count(self, buffers: Sequence[Any]) -> int:
        size = size_of(buffers)
        self._sent.add(size)
        return size

    def _method(self, name: str) -> Any:
        found = self._methods.get(name)
        if found is None:
            is_stream = name.endswith((IN_CHUNKS, IN_TURN))
            make = self._channel.stream_stream if is_stream else self._channel.unary_unary
            found = self._methods[name] = make(f"/{SERVICE}/{name}")
        return found

    def close(self) -> None:
        """Hangs up."""
        self._closed = True
        for lines in self._idle.values():
            for line in lines:
                line.close()
        self._channel.close()


class _Line:
    """A call that stays open, for one message and its answer after the other."""

    def __init__(self, method: Any, timeout: float):
        self._messages: SimpleQueue[bytes | None] = SimpleQueue()
        self._answers = method(iter(self._messages.get, None), timeout=(1 + _LINE_AGE) * timeout, wait_for_ready=False)
        self._useful_until = time.monotonic() + _LINE_AGE * timeout
        self._on_break: Callable[[], None] | None = None
        self._answers.add_callback(self._broke)

    @property
    def is_useful(self) -> bool:
        """Whether another message can be sent and waited for."""
        return self._answers.is_active() and time.monotonic() < self._useful_until

    def when_broken(self, action: Callable[[], None] | None) -> None:
        """Has ``action`` called when the call ends, perhaps twice if it does so just now."""
        self._on_break = action
        if not self._answers.is_active():
            self._broke()

    def _broke(self) -> None:
        action, self._on_break = self._on_break, None
        if action is not None:
            action()

    def say(self, message: bytes) -> None:
        """Sends a message, behind the caller's back."""
        self._messages.put(message)

    def listen(self) -> bytes:
        """The answer to a message. If there is none, the line is no use any more."""
        for answer in self._answers:
            return answer
        raise _HungUpError

    def close(self) -> None:
        """Lets the server's thread, and gRPC's own that waits for messages, go."""
        self._messages.put(None)

    def drop(self) -> None:
        """`close`, whatever is still under way."""
        self._answers.cancel()
        self.close()


class Question:
    """A message under way, and its answer to come."""

    def __init__(self, connection: Connection, method: str, line: _Line):
        self._connection, self._method, self._line = connection, method, line
        self._is_open = True

    def when_broken(self, action: Callable[[], None]) -> None:
        """Has ``action`` called, on any thread and perhaps twice, if the line breaks before there is an answer."""
        self._line.when_broken(action)

    def result(self) -> bytes:
        """Waits for the answer, a quarter longer than the timeout at most."""
        try:
            answer = self._line.listen()
        except BaseException:
            self._end(None)
            raise
        self._end(answer)
        return answer

    def cancel(self) -> None:
        """Nobody wants the answer, unless it was there already."""
        if self._is_open:
            self._end(None)

    def _end(self, answer: bytes | None) -> None:
        self._is_open = False
        self._line.when_broken(None)
        self._connection.answered(self._method, self._line, answer)


class _HungUpError(grpc.RpcError):
    """The server ended the call that a line is, in good order but without an answer."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the server hung up"


def listen(endpoint: str, handlers: dict[str, Handler], threads: int) -> grpc.Server:
    """A gRPC server for ``handlers`` that listens at ``endpoint`` and is not started yet."""
    server = grpc.server(ThreadPoolExecutor(threads, "parameter-server"), options=_OPTIONS)
    server.add_generic_rpc_handlers((_Service(handlers),))
    try:
        port = server.add_insecure_port(endpoint)
    except RuntimeError:
        port = 0
    if not port:
        server.stop(None)
        raise ServerBusyError(endpoint)
    return server


class _Service(grpc.GenericRpcHandler):
    """Finds the handler of a call by its name."""

    def __init__(self, handlers: dict[str, Handler]):
        self._methods: dict[str, grpc.RpcMethodHandler] = {}
        for name, handler in handlers.items():
            path = f"/{SERVICE}/{name}"
            self._methods[path] = grpc.unary_unary_rpc_method_handler(_whole(handler))
            self._methods[path + IN_TURN] = grpc.stream_stream_rpc_method_handler(_in_turn(handler))
            self._methods[path + IN_CHUNKS] = grpc.stream_stream_rpc_method_handler(_in_chunks(handler))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(handler_call_details.method)


def _whole(handler: Handler) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    return lambda message, context: b"".join(handler(message, context))


def _in_turn(handler: Handler) -> Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]:
    return lambda received, context: (b"".join(handler(message, context)) for message in received)


def _in_chunks(handler: Handler) -> Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]:
    return lambda received, context: chunks(handler(b"".join(received), context))


def chunks(buffers: Sequence[Any]) -> Iterator[bytes]:
    """A message cut into chunks; small neighbours share one."""
    small: list[Any] = []
    held = 0
    for buffer in buffers:
        if held + len(buffer) > CHUNK:
            yield b"".join(small)
            small, held = [], 0
        if len(buffer) > CHUNK:
            view = memoryview(buffer)
            yield from (bytes(view[i : i + CHUNK]) for i in range(0, len(view), CHUNK))
        else:
            small.append(buffer)
            held += len(buffer)
    yield b"".join(small)
