"""A parameter server on gRPC: listens, calls `Server.handle`, and gives its exceptions status codes.

gRPC calls handlers on threads of a pool, one for each call and each open stream. A thread pool with a lock and not an
event loop: a reply leaves sooner, and the update needs no second thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from refluid.ir.operator import Operator
from refluid.lowering.exchange import Exchange
from refluid.runtime.observe.watchdog import Watchdog
from refluid.runtime.server.exchange import Buffers
from refluid.runtime.server.server import REFUSALS, RestartedError, Server, describe
from refluid.runtime.server.view import BUDGET
from refluid.runtime.transport.addresses import address_of
from refluid.runtime.transport.admission import NoRoomError
from refluid.runtime.transport.connection import MAX_STREAMS, SERVICE, Connection
from refluid.runtime.transport.listener import Handler, listen
from refluid.runtime.transport.memory import keep_freed_memory
from refluid.runtime.transport.refusals import MALFORMED, REASONS, Refusals, told
from refluid.runtime.transport.wire import MalformedError
from refluid.scope import Scope

_GRACE = 5.0  # seconds that running calls have to end when the server stops
_CHECK_EVERY = 1.0  # seconds


class ListenAndServe(Exchange):
    """The exchange that a server's program consists of: serves until every trainer has left.

    Next to the parameter server runs the standard health service: SERVING while trainers may join and train,
    NOT_SERVING once all have left.
    """

    def __init__(self, op: Operator, scope: Scope, place: Any):
        self._op, self._scope, self._place = op, scope, place

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        server = Server(self._op, self._scope, self._place, Connection)
        handlers = {method: _handler(server, method, lambda: listener.refusals) for method in server.methods}
        listener = listen(address_of(server.endpoint), handlers, threads=4 * MAX_STREAMS * server.most_trainers)
        health_service = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health_service, listener.grpc)
        keep_freed_memory()
        counts = {reason: partial(listener.refusals.counts.__getitem__, reason) for reason in REASONS}
        budget = listener.admission.budget
        server.metrics.gauges("messages_refused", "Messages that were turned away, by reason", "reason", counts)
        server.metrics.gauge("inflight_bytes", "Bytes of large messages and their replies", lambda: budget.held)
        server.view.depths |= {"inflight_bytes": lambda: budget.held, BUDGET: lambda: budget.size}
        metrics = server.metrics.serve()
        watchdog = Watchdog(server.log, server.view.observe)
        try:
            for name in ("", SERVICE):
                health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
            listener.start()
            watchdog.start()
            server.log.info(f"Server listening on {server.endpoint}")
            # Waits for an event of its own: the condition of updates would wake this thread in every round.
            while not server.all_left.wait(_CHECK_EVERY):
                server.check_trainers()
        finally:
            health_service.enter_graceful_shutdown()
            watchdog.stop()
            listener.stop(_GRACE).wait()
            server.close()
            if metrics is not None:
                metrics.close()
        if server.failure is not None and server.all_left.is_set():
            raise server.failure
        server.log.info("all trainers have left, stopping", trainers=server.trainers, round=server.round)
        return {}


def _handler(server: Server, method: str, refusals: Callable[[], Refusals]) -> Handler:
    """A gRPC handler whose exceptions reach the caller as a status code and a text."""

    def handle(message: bytes, context: grpc.ServicerContext) -> Buffers:
        try:
            return server.handle(method, message)
        except NoRoomError:
            raise
        except RestartedError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except MalformedError as error:
            refusals().add(MALFORMED, context.peer(), method=method, problem=str(error))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, told(f"server {server.endpoint}: {error}"))
        except REFUSALS as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, told(f"server {server.endpoint}: {describe(error)}"))
        except Exception as error:  # noqa: BLE001 - the caller and the log get it, and the server goes on
            context.abort(grpc.StatusCode.INTERNAL, told(f"server {server.endpoint}: {describe(error)}"))
        raise AssertionError("abort raises")

    return handle
