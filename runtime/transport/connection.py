"""gRPC transport: how one message reaches a server and its reply comes back.

A small message is one gRPC message; a large one is a stream of chunks. Callers see buffers and bytes either way. The
small messages of every step go through streams that stay open, which cost half as much as unary calls.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import grpc
from prometheus_client import Counter

from refluid.runtime.transport import security
from refluid.runtime.transport.addresses import address_of

SERVICE = "refluid.runtime.ParameterServer"
MAILBOX = "refluid.runtime.Mailbox"
IN_CHUNKS, STREAMED = "InChunks", "Streamed"
LARGE = 32 << 20  # bytes; larger messages travel in several chunks
CHUNK = 4 << 20
SMALL = 1 << 20  # bytes; larger messages say so before they are sent, and gain nothing from an open stream
SIZE_KEY = "refluid-bytes"  # of a call's metadata: how large its message and the reply are together
MAX_STREAMS = 4  # per connection, as each takes a thread of the server
_STREAM_AGE = 0.25  # of a timeout: gRPC's deadline is for the whole stream, not for one reply

# These have a connection of their own, so that they do not wait behind a large message.
_APART = ("Heartbeat", "Leave", "Ping")
_APART_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]  # gRPC shares connections otherwise

# Control calls that may safely arrive twice are retried by gRPC. Exchanges have a policy of their own (see `request`),
# and a trainer that joins reports which servers it waits for.
_RETRIED = ("Leave", "Status", "Inventory", "Snapshot", "Tables")
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": SERVICE, "method": method} for method in _RETRIED],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

# Either side notices within 20 s that the other does not reply to its pings: a cut may be in one direction only, and
# nobody closes the connections of a machine that is gone. gRPC itself replies, whatever its process is busy with.
_PING_AFTER, _PING_TIMEOUT = 10_000, 10_000  # ms without a byte from the other side

OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.so_reuseport", 0),  # two servers on one port would share the calls between them
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", _PING_AFTER),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT),
    ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT),  # of pings that measure the network, in whose stead no other is sent
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", _PING_AFTER // 2),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 3000),  # what one attempt to connect may take: a far server, with TLS
    ("grpc.dns_min_time_between_resolutions_ms", 1000),  # a server that comes back may have another address
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
]


def size_of(buffers: Sequence[Any]) -> int:
    """The number of bytes in a message."""
    return sum(len(buffer) for buffer in buffers)


class Connection:
    """A connection of this process to one server; ``sent`` and ``received`` count bytes."""

    def __init__(
        self, endpoint: str, sent: Counter | None = None, received: Counter | None = None, service: str = SERVICE
    ):
        self.endpoint, self._service = endpoint, service
        self._sent = sent or Counter("sent_total", "Bytes sent", registry=None)
        self._received = received or Counter("received_total", "Bytes received", registry=None)
        self._address = address_of(endpoint)
        self._channel, self._certificates = security.open_channel(self._address, OPTIONS)
        self._apart: grpc.Channel | None = None  # for control calls
        self._replaced: list[grpc.Channel] = []  # with older certificates or addresses; streams may still be in use
        self._methods: dict[tuple[str, str], Any] = {}  # by name and by gRPC's form of the call
        self._idle: dict[str, list[Stream]] = {}
        self._choosing = threading.Lock()
        self._free_streams = threading.Semaphore(MAX_STREAMS)
        self._closed = False

    def call(self, method: str, buffers: Sequence[Any], timeout: float, reply_size: int = 0) -> bytes:
        """Sends a message and waits for the reply; ``reply_size`` is its size, if it is known to be large."""
        size = size_of(buffers)
        self._sent.inc(size)
        metadata, options = security.call_metadata(), {"timeout": timeout, "wait_for_ready": False}
        try:
            if max(size, reply_size) > SMALL:
                metadata = (*metadata, (SIZE_KEY, str(size + reply_size)))
                form = "stream_stream" if size > LARGE else "unary_stream"  # which needs no thread for one chunk
                sent = chunks(buffers) if size > LARGE else b"".join(buffers)
                reply = b"".join(self._method(method + IN_CHUNKS, form)(sent, metadata=metadata, **options))
            else:
                reply = self._method(method)(b"".join(buffers), metadata=metadata, **options)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and address_of(self.endpoint) != self._address:
                self._connect_anew()  # the next attempt finds it
            raise
        self._received.inc(len(reply))
        return reply

    def send(self, method: str, buffers: Sequence[Any], timeout: float, reply_size: int = 0) -> Stream | None:
        """Sends a message through an open stream, which must be released after its reply.

        Returns None, and sends nothing, if all streams are in use or the message is too large for one.
        """
        size = size_of(buffers)
        if max(size, reply_size) > SMALL or not self._free_streams.acquire(blocking=False):
            return None
        try:
            stream = self._stream(method, timeout)
        except BaseException:
            self._free_streams.release()
            raise
        self._sent.inc(size)
        stream.send(b"".join(buffers))
        return stream

    def release(self, method: str, stream: Stream, reply: bytes | None) -> None:
        """Returns a stream to the pool; without a reply it is cancelled instead."""
        stream.on_failure(None)
        if reply is None or self._closed:
            stream.cancel()
        else:
            self._received.inc(len(reply))
            self._idle[method].append(stream)
        self._free_streams.release()

    def _stream(self, method: str, timeout: float) -> Stream:
        """An idle stream that is still usable, or a new one."""
        with self._choosing:
            idle = self._idle.setdefault(method, [])
            while idle:
                stream = idle.pop()
                if stream.is_usable:
                    return stream
                stream.close()
        return Stream(self._method(method + STREAMED), timeout)

    def _method(self, name: str, form: str = "") -> Any:
        if self._certificates is not None and self._certificates != security.certificates_in_use():
            self._connect_anew()
        form = form or ("stream_stream" if name.endswith((IN_CHUNKS, STREAMED)) else "unary_unary")
        found = self._methods.get((name, form))
        if found is None:
            make = getattr(self._open_apart() if name in _APART else self._channel, form)
            found = self._methods[name, form] = make(f"/{self._service}/{name}")
        return found

    def _open_apart(self) -> grpc.Channel:
        with self._choosing:
            if self._apart is None:
                self._apart, _ = security.open_channel(self._address, [*OPTIONS, *_APART_OPTIONS])
            return self._apart

    def _connect_anew(self) -> None:
        """Uses renewed certificates, or another address. Open streams are used until they are old or break."""
        with self._choosing:
            self._replaced += self._channels()
            self._methods, self._apart = {}, None
            self._address = address_of(self.endpoint)
            self._channel, self._certificates = security.open_channel(self._address, OPTIONS)

    def close(self) -> None:
        """Closes all streams and the channel."""
        self._closed = True
        for streams in self._idle.values():
            for stream in streams:
                stream.close()
        for channel in (*self._channels(), *self._replaced):
            channel.close()

    def _channels(self) -> list[grpc.Channel]:
        return [self._channel] if self._apart is None else [self._channel, self._apart]


class Stream:
    """A call that stays open for one message and its reply after the other."""

    def __init__(self, method: Any, timeout: float):
        self._messages: SimpleQueue[bytes | None] = SimpleQueue()
        self._call = method(
            iter(self._messages.get, None),
            timeout=(1 + _STREAM_AGE) * timeout,
            wait_for_ready=False,
            metadata=security.call_metadata(),
        )
        self._usable_until = time.monotonic() + _STREAM_AGE * timeout
        self._on_failure: Callable[[], None] | None = None
        self._call.add_callback(self._ended)

    @property
    def is_usable(self) -> bool:
        """Whether another message can be sent and its reply awaited."""
        return self._call.is_active() and time.monotonic() < self._usable_until

    def on_failure(self, action: Callable[[], None] | None) -> None:
        """Has ``action`` called, on any thread, when the stream ends; twice at most, if that happens just now."""
        self._on_failure = action
        if not self._call.is_active():
            self._ended()

    def _ended(self) -> None:
        action, self._on_failure = self._on_failure, None
        if action is not None:
            action()

    def send(self, message: bytes) -> None:
        """Hands a message to gRPC, which sends it on a thread of its own."""
        self._messages.put(message)

    def receive(self) -> bytes:
        """Waits for a reply, a quarter longer than the timeout at most. A stream that gives none is of no more use."""
        for reply in self._call:
            return reply
        raise _StreamClosedError

    def close(self) -> None:
        """Ends the stream, and the threads on both sides that wait for its messages."""
        self._messages.put(None)

    def cancel(self) -> None:
        """Ends the stream even while a reply is pending."""
        self._call.cancel()
        self.close()


class _StreamClosedError(grpc.RpcError):
    """The server closed a stream in good order, but without a reply."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the server closed the stream"


def chunks(buffers: Sequence[Any]) -> Iterator[bytes]:
    """Cuts a large message into chunks; small neighbouring buffers share one."""
    if size_of(buffers) <= LARGE:
        yield b"".join(buffers)
        return
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
