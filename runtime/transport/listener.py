"""The side of gRPC that listens: a port, the three forms of every method, and who is turned away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from refluid import access
from refluid.errors import PlaintextError, ServerBusyError
from refluid.log import Log
from refluid.runtime.transport import security
from refluid.runtime.transport.admission import Admission, Room
from refluid.runtime.transport.connection import IN_CHUNKS, LARGE, MAILBOX, OPTIONS, SERVICE, STREAMED, chunks
from refluid.runtime.transport.refusals import FOREIGN, TOKEN, Refusals

Handler = Callable[[bytes, grpc.ServicerContext], Sequence[Any]]


_LIMITS = [
    # Of one gRPC message: nothing larger is read. A message of the protocol is one chunk up to this size.
    ("grpc.max_receive_message_length", LARGE + (64 << 10)),
    ("grpc.max_concurrent_streams", 128),
    ("grpc.http2.bdp_probe", 0),  # no windows of megabytes: messages that wait to be let in stay with their senders
]


class Listener:
    """A gRPC server for the handlers of one service; it turns away what it should not read. `start` it.

    Args:
      endpoint: where it listens; port 0 takes any free one.
      service: its full name.
      handlers: by method.
      threads: for calls and open streams.

    Raises:
      ServerBusyError: the port is in use, or the address is not of this machine.
      PlaintextError: others could reach it, and there is no TLS.
    """

    def __init__(self, endpoint: str, service: str, handlers: dict[str, Handler], threads: int):
        role = "server" if service == SERVICE else "trainer"
        self.who, log = f"{role} {endpoint}", Log(role=role, endpoint=endpoint)
        self.refusals = Refusals(log)
        self.admission = Admission(self.who, threads, self.refusals)
        check = security.TokenCheck(self.who, lambda peer, method: self.refusals.add(TOKEN, peer, method=method))
        self.grpc = grpc.server(
            ThreadPoolExecutor(threads, service.rpartition(".")[2]),
            options=[*((key, value) for key, value in OPTIONS if key not in dict(_LIMITS)), *_LIMITS],
            interceptors=[check] if access.tokens() else [],
        )
        self.grpc.add_generic_rpc_handlers((_Service(service, handlers, self.admission, self.refusals),))
        try:
            self.port = security.add_port(self.grpc, endpoint, log)
        except PlaintextError:
            self.stop(None)
            raise
        except RuntimeError:
            self.port = 0
        if not self.port:
            self.stop(None)
            raise ServerBusyError(endpoint)

    def start(self) -> None:
        """Begins to serve."""
        self.grpc.start()

    def stop(self, grace: float | None) -> threading.Event:
        """Stops; calls that are being served have so many seconds to end. Returns what is set then."""
        return self.grpc.stop(grace)


def listen(endpoint: str, handlers: dict[str, Handler], threads: int) -> Listener:
    """Makes a listener for the methods of a parameter server."""
    return Listener(endpoint, SERVICE, handlers, threads)


def open_mailbox(endpoint: str, handlers: dict[str, Handler], threads: int) -> Listener:
    """Starts a listener for the mailbox of a trainer."""
    made = Listener(endpoint, MAILBOX, handlers, threads)
    made.start()
    return made


class _Service(grpc.GenericRpcHandler):
    """Finds the handler of a call by its method name.

    All forms are streams of requests for gRPC, so that a call is let in before its message is read.
    """

    def __init__(self, service: str, handlers: dict[str, Handler], admission: Admission, refusals: Refusals):
        self._methods: dict[str, grpc.RpcMethodHandler] = {}
        self._prefix, self._refusals = f"/{service}/", refusals
        for name, handler in handlers.items():
            path, forms = self._prefix + name, _Forms(name, handler, admission)
            self._methods[path] = grpc.stream_unary_rpc_method_handler(forms.whole)
            self._methods[path + STREAMED] = grpc.stream_stream_rpc_method_handler(forms.streamed)
            self._methods[path + IN_CHUNKS] = grpc.stream_stream_rpc_method_handler(forms.in_chunks)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method: Any = handler_call_details.method
        found = self._methods.get(method)
        if found is None and not method.startswith("/grpc.health.v1."):  # which another handler knows
            self._refusals.add(FOREIGN, "", method=method[:128])
        return found


class _Forms:
    """The three forms of a method."""

    def __init__(self, method: str, handler: Handler, admission: Admission):
        self._method, self._handler, self._admission = method, handler, admission

    def whole(self, received: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._admission.call(self._method, context):
            message = next(received, None)
            if message is None:  # gRPC has ended the call, or its caller sends nothing
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a message")
                raise AssertionError("abort raises")
            self._admission.small(message, self._method, context)
            room = Room(self._admission.budget)
            if not context.add_callback(room.close):  # called when the reply is sent
                room.close()  # nobody waits for it
            return b"".join(self._serve(message, context, room))

    def streamed(self, received: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        room = Room(self._admission.budget)
        with self._admission.call(self._method, context, stream=True):
            try:
                for message in received:
                    yield b"".join(self._serve(self._admission.small(message, self._method, context), context, room))
                    room.give_back()
            finally:
                room.close()

    def in_chunks(self, received: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        with (
            self._admission.call(self._method, context),
            self._admission.large(received, self._method, context) as (message, room),
        ):
            yield from chunks(self._serve(message, context, room))

    def _serve(self, message: bytes, context: grpc.ServicerContext, room: Room) -> Sequence[Any]:
        with self._admission.replying(self._method, context, room):
            return self._handler(message, context)
