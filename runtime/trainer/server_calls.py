"""A trainer's calls to servers: one request to each, their replies collected, failures retried and reported."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import grpc

from refluid.errors import ServerError
from refluid.log import Log
from refluid.runtime.observe.trainer_metrics import TrainerMetrics
from refluid.runtime.observe.waits import Party, trainer_name
from refluid.runtime.observe.watchdog import Observation, Watchdog
from refluid.runtime.trainer.exchange_plan import Job
from refluid.runtime.trainer.membership import Membership, doing, reply_timeout
from refluid.runtime.trainer.packing import Message, Replies, Tensors, Versions, versions_of
from refluid.runtime.trainer.waiting import WaitLog
from refluid.runtime.transport import wire
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.request import BUSY, Request, RetryPolicy, patiently
from refluid.runtime.transport.wire import pb

STEP = pb.ExchangeRequest.STEP
WAIT = pb.ExchangeRequest.WAIT
OFFER = pb.ExchangeRequest.OFFER
START = pb.ExchangeRequest.START
ROWS = pb.ExchangeRequest.ROWS
READ = pb.ExchangeRequest.READ


class ServerCalls:
    """The calls of one trainer.

    Args:
      connect: makes the connection to an endpoint, given counters of the bytes sent and received.
    """

    def __init__(self, job: Job, connect: Callable[..., Connection], metrics: TrainerMetrics, log: Log):
        self.job = job
        self.step = 0  # training steps taken, for messages
        self.seen: dict[str, int] = {}  # the versions of the parameters in use, by endpoint
        self.max_staleness = 0  # own steps that the parameters in use may lack
        self.max_lead: int | None = None  # steps that this trainer may be ahead of the slowest one
        self.unknown_steps = 0  # steps that it may have taken and servers do not know of
        self._pulled: set[str] = set()  # servers that hold dense parameters
        self._metrics, self._log = metrics, log
        self._connections = {endpoint: connect(endpoint, metrics.sent, metrics.received) for endpoint in job.endpoints}
        self._waits = WaitLog(trainer_name(job.trainer), log, lambda: self.step)
        self._members = Membership(job, self._connections, log, self._error, self._waits, lambda: self.step)
        self.sequence, self.caller = self._members.sequence, self._members.caller
        self._watchdog = Watchdog(log, self._observe, self._waits.remind)
        self._watchdog.start()
        try:
            self._members.join_all()
        except BaseException:
            self._watchdog.stop()
            raise
        self.step = self._members.applied
        # Up to three threads of a trainer have requests to all servers: those that train, push and pull. A request that
        # is retried early needs a second thread for its call.
        self._pool = ThreadPoolExecutor(2 * 3 * len(job.endpoints), "exchange")

    def _observe(self, now: float) -> Observation:
        """What this trainer knows, for its watchdog: whom it waits for, and who waits for it."""
        waits = [*self._waits.for_servers(now), *self._waits.for_trainers(now), *self._members.awaited(now)]
        me = Party(trainer_name(self.job.trainer), where=self._members.host, doing=doing())
        counts = {"step": self.step, "queued_steps": self.queued(), "open_requests": len(self._waits)}
        return Observation((self.step, self._waits.over), waits, [me], counts)

    def queued(self) -> int:
        """Steps whose gradients wait to be sent."""
        return 0

    @property
    def lost_updates(self) -> int:
        """Updates that servers have lost when they were restarted."""
        return self._members.lost

    @property
    def to_catch_up(self) -> int:
        """How many steps of an earlier process of this trainer some servers have and others lack, if there are any."""
        return self._members.to_catch_up

    def steps_to_merge(self, steps: int) -> int:
        """For how many steps a push may stand that else stands for ``steps``: servers take it as a whole, or not."""
        return min(steps, self.to_catch_up or steps)

    def applied_steps(self) -> int:
        """The steps of this trainer, of all its processes, that are applied on the servers now."""
        for endpoint in self.job.endpoints:
            self._declare(endpoint, (), ())
        return self._members.applied

    def declare(self, pushes: Mapping[str, Sequence[Any]], pulls: Mapping[str, Sequence[Any]]) -> None:
        """Declares the tensors that an exchange will push and pull; a server refuses what it does not have."""
        self._pulled |= pulls.keys()
        for endpoint in {*pushes, *pulls}:
            self._declare(endpoint, pushes.get(endpoint, ()), pulls.get(endpoint, ()))

    def _declare(self, endpoint: str, pushes: Sequence[Any], pulls: Sequence[Any]) -> None:
        try:
            patiently(lambda: self._members.join(endpoint, pushes, pulls), RetryPolicy(reply_timeout()))
        except grpc.RpcError as error:
            raise self._refused(endpoint, error) from None

    def push(self, messages: Mapping[str, Message], steps: int = 1, seen: Versions | None = None) -> Replies:
        """Pushes gradients or deltas and returns what the messages pull, as the mode defines it.

        ``seen`` are the versions of the parameters that the oldest of the steps used, by default those in use.
        """
        for endpoint in messages:
            self._members.count_push(endpoint, steps)
        return self.exchange(STEP, messages, steps, self.seen if seen is None else seen)

    def use(self, replies: Replies) -> None:
        """Records that the next step uses the parameters in replies."""
        self.seen.update(versions_of(replies))

    def use_rows(self, replies: Replies) -> None:
        """Records that the step uses rows in replies. They are never older than the dense parameters of a server."""
        self.seen.update({name: version for name, version in versions_of(replies).items() if name not in self._pulled})

    def use_earlier_rows(self, replies: Replies) -> None:
        """Records that the step uses rows of replies that may be older than the dense parameters."""
        for name, version in versions_of(replies).items():
            self.seen[name] = min(version, self.seen.get(name, version)) if name in self._pulled else version

    def exchange(
        self, purpose: int, messages: Mapping[str, Message], steps: int = 0, seen: Versions = MappingProxyType({})
    ) -> Replies:
        """Sends one message to each server, then collects the tensors in their replies."""
        began = time.perf_counter()
        requests: dict[str, Request] = {}
        found: dict[str, Tensors] = {}
        try:
            for endpoint, message in messages.items():
                requests[endpoint] = self._send(endpoint, purpose, message, steps, seen.get(endpoint, 0))
            for endpoint, message in messages.items():
                again = partial(self._send_again, endpoint, purpose, message, steps, seen.get(endpoint, 0))
                reply, received = self._collect(requests[endpoint], again)
                self._members.replied(endpoint, pushed=purpose == STEP)
                found[endpoint] = Tensors(wire.decode_tensors(reply, received), reply.version)
        finally:
            for request in requests.values():
                request.cancel()
        pulled = purpose == ROWS or any(message.wanted or message.asked for message in messages.values())
        self._metrics.exchanged(pushed=purpose == STEP, pulled=pulled, seconds=time.perf_counter() - began)
        return found

    def _send(self, endpoint: str, purpose: int, message: Message, steps: int, seen: int = 0) -> Request:
        header = pb.ExchangeRequest(
            caller=self.caller,
            purpose=purpose,
            sequence=self.sequence[endpoint],
            steps=steps,
            wanted=message.wanted,
            seen=seen,
            max_staleness=self.max_staleness,
            max_lead=self.max_lead,
            unknown_steps=self.unknown_steps,
        )
        return self._request(
            endpoint, "Exchange", wire.encode(header, {**message.pushed, **message.asked}), message.reply_size
        )

    def _send_again(
        self, endpoint: str, purpose: int, message: Message, steps: int, seen: int, *, missing: bool
    ) -> Request:
        """The request that follows a pending reply. A push has arrived: only its update is awaited.

        ``missing``: a restarted server does not have it, and gets it again.
        """
        if purpose == STEP and not missing:
            purpose, message = WAIT, replace(message, pushed={})
        return self._send(endpoint, purpose, message, steps, seen)

    def _request(self, endpoint: str, method: str, buffers: list[Any], reply_size: int = 0) -> Request:
        policy, before_retry = RetryPolicy(reply_timeout()), partial(self._before_retry, endpoint)
        return Request(self._connections[endpoint], method, buffers, policy, self._pool, reply_size, before_retry)

    def _before_retry(self, endpoint: str, reason: str, seconds: float) -> None:
        self._log.warning("request failed; retrying", server=endpoint, step=self.step, reason=reason, seconds=seconds)
        self._metrics.retried()
        if self._members.failure:
            raise self._error(endpoint, self._members.failure)
        self._waits.failed(endpoint, f"requests fail with {reason}")
        if reason == BUSY.name:
            return
        try:
            self._members.join(endpoint)  # the server may have been restarted
        except grpc.RpcError as error:
            self._waits.failed(endpoint, self._members.why_unreachable(endpoint, error))
            raise

    def _collect(
        self, request: Request, again: Callable[..., Request], patience: float = math.inf
    ) -> tuple[Any, bytes]:
        """The reply to a request, and its bytes. While it is pending, ``again(missing=...)`` makes the next request."""
        wait, replied = self._waits.begin(request.endpoint), False
        try:
            while True:
                received = request.result()
                reply = wire.decode(pb.ExchangeReply, received)
                if not reply.pending:
                    replied = True
                    return reply, received
                self._waits.pending(wait, reply.awaited)
                if reply.waited_seconds > patience:
                    names = ", ".join(reply.awaited)
                    raise self._error(request.endpoint, f"after {reply.waited_seconds:.0f} s still waiting for {names}")
                request = again(missing=reply.missing)
        except grpc.RpcError as error:
            raise self._refused(request.endpoint, error) from None
        finally:
            self._waits.end(wait, replied=replied)

    def barrier(self, text: str = "", patience: float = math.inf) -> dict[int, str]:
        """Waits until every trainer that has not left has reached its barrier of the same number.

        Returns the texts that the trainers brought, by trainer; one that had left before is not among them.

        Raises:
          ServerError: trainers are missing ``patience`` seconds after the first one was there; they are named.
        """
        number, endpoint = self._members.barriers + 1, self.job.endpoints[0]
        repeats = self._members.repeats(endpoint)
        buffers = wire.encode(pb.ExchangeRequest(caller=self.caller, sequence=number, steps=repeats, text=text))

        def ask(*, missing: bool = False) -> Request:
            return self._request(endpoint, "Barrier", buffers)

        reply, _ = self._collect(ask(), ask, patience)
        self._members.barriers = number
        return dict(reply.texts)

    def status(self) -> list[dict[str, Any]]:
        """The status of each server."""
        messages = [self.call(endpoint, "Status", pb.Empty()) for endpoint in self.job.endpoints]
        return [json.loads(wire.decode(pb.Text, message).text) for message in messages]

    def call(self, endpoint: str, method: str, header: Any) -> bytes:
        """Makes a call without tensors."""
        try:
            return self._request(endpoint, method, wire.encode(header)).result()
        except grpc.RpcError as error:
            raise self._refused(endpoint, error) from error

    def call_all(self, method: str, headers: Mapping[str, Any]) -> dict[str, bytes]:
        """Makes calls without tensors to several servers at the same time; returns their replies."""
        calls = {
            endpoint: self._pool.submit(self.call, endpoint, method, header) for endpoint, header in headers.items()
        }
        found: dict[str, bytes] = {}
        for endpoint, call in calls.items():
            try:
                found[endpoint] = call.result()
            except grpc.RpcError as error:
                raise self._refused(endpoint, error) from None
        return found

    def _refused(self, endpoint: str, error: grpc.RpcError) -> ServerError:
        return self._error(endpoint, error.details() or str(error))

    def _error(self, endpoint: str, problem: str) -> ServerError:
        return ServerError(self.job.trainer, self.step, endpoint, problem.removeprefix(f"server {endpoint}: "))

    def close(self, failure: str = "") -> None:
        """Leaves the job, with the reason if this trainer has failed, and closes all connections."""
        self._watchdog.stop()
        self._pool.shutdown()
        self._members.leave(failure)
        for connection in self._connections.values():
            connection.close()
