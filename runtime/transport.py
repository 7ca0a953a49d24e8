"""gRPC underneath: how one message gets to a server and its answer back.

A message is one gRPC message if it is small, and a stream of chunks if it is large; the two ends of a call see buffers
and bytes either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from refluid.errors import ServerBusyError
from refluid.runtime.metrics import Counter

SERVICE = "refluid.runtime.ParameterServer"
IN_CHUNKS = "InChunks"
LARGE = 32 << 20  # bytes; what is larger travels in chunks
CHUNK = 4 << 20

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
    """The line from this process to one server; ``sent`` and ``received`` count its bytes."""

    def __init__(self, endpoint: str, sent: Counter | None = None, received: Counter | None = None):
        self.endpoint = endpoint
        self._sent, self._received = sent or Counter(), received or Counter()
        self._channel = grpc.insecure_channel(endpoint, options=_OPTIONS)
        self._methods: dict[str, Any] = {}

    def call(self, method: str, buffers: Sequence[Any], timeout: float, expected: int = 0) -> bytes:
        """Sends a message and waits for the answer; ``expected`` is its size, if it is known to be large."""
        size = self._count(buffers)
        if max(size, expected) > LARGE:
            answer = b"".join(self._method(method + IN_CHUNKS)(chunks(buffers), timeout=timeout, wait_for_ready=False))
        else:
            answer = self._method(method)(b"".join(buffers), timeout=timeout, wait_for_ready=False)
        self._received.add(len(answer))
        return answer

    def _count(self, buffers: Sequence[Any]) -> int:
        size = size_of(buffers)
        self._sent.add(size)
        return size

    def _method(self, name: str) -> Any:
        found = self._methods.get(name)
        if found is None:
            make = self._channel.stream_stream if name.endswith(IN_CHUNKS) else self._channel.unary_unary
            found = self._methods[name] = make(f"/{SERVICE}/{name}")
        return found

    def close(self) -> None:
        """Hangs up."""
        self._channel.close()


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
            self._methods[path + IN_CHUNKS] = grpc.stream_stream_rpc_method_handler(_inchunks(handler))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(handler_call_details.method)


def _whole(handler: Handler) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    return lambda message, context: b"".join(handler(message, context))


def _inchunks(handler: Handler) -> Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]:
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
