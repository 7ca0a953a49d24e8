"""Requests: a message to one server, sent again until there is a reply or its policy gives up."""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from refluid.runtime.transport.connection import Connection, Stream

Result = TypeVar("Result")
BUSY = grpc.StatusCode.RESOURCE_EXHAUSTED  # the server has no room for the message now
TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, BUSY)


@dataclass(frozen=True)
class RetryPolicy:
    """When a failed request is sent again: on transient errors, with growing random pauses, within a time limit."""

    timeout: float  # seconds, for one reply and for all attempts together
    first_pause: float = 0.1
    longest_pause: float = 1.0

    def allows(self, error: grpc.RpcError, seconds: float) -> bool:
        """Whether to send again after an error, ``seconds`` after the first attempt."""
        return error.code() in TRANSIENT and seconds <= self.timeout

    def pause(self, attempt: int) -> float:
        """How long to wait before attempt number ``attempt``, from 1."""
        return min(self.first_pause * 2 ** (attempt - 1), self.longest_pause) * (1 + random.random())


def patiently(call: Callable[[], Result], policy: RetryPolicy) -> Result:
    """The result of a call, which is repeated as long as the policy allows."""
    began, attempt = time.monotonic(), 0
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if not policy.allows(error, time.monotonic() - began):
                raise
        attempt += 1
        time.sleep(policy.pause(attempt))


class Request:
    """A message to one server and its reply to come; it is sent when the object is made.

    One thread sends requests to all servers and then collects the replies. A request that fails before its reply is
    collected is sent again on another thread at once: servers may wait for each other.

    Args:
      threads: runs what cannot go through a stream, and early retries.
      reply_size: the size of the reply in bytes, about.
      before_retry: called before the message is sent again, with the name of the error and the seconds since the first
        attempt; if it raises a gRPC error, this attempt has failed too.
    """

    def __init__(
        self,
        connection: Connection,
        method: str,
        buffers: Sequence[Any],
        policy: RetryPolicy,
        threads: Executor,
        reply_size: int = 0,
        before_retry: Callable[[str, float], None] | None = None,
    ):
        self.endpoint = connection.endpoint
        self.began = time.monotonic()
        self._connection, self._method, self._buffers = connection, method, buffers
        self._policy, self._threads, self._reply_size = policy, threads, reply_size
        self._before_retry = before_retry
        self._stream: Stream | None = None
        self._call: Future[bytes] | None = None
        self._choosing = threading.Lock()
        self._is_taken = False  # a thread receives the reply, or nobody wants it
        self._is_cancelled = False
        self._retrying: Future[bytes] | None = None
        self._send()
        self._watch()

    def result(self) -> bytes:
        """Waits for the reply.

        Raises:
          grpc.RpcError: the server refused the message, or the policy allows no further attempt.
        """
        with self._choosing:
            self._is_taken = True
        return self._receive() if self._retrying is None else self._retrying.result()

    def cancel(self) -> None:
        """Ends the request unless it has its reply already."""
        with self._choosing:
            self._is_taken = self._is_cancelled = True
        if self._retrying is None:
            self._release(None)
            if self._call is not None:
                self._call.cancel()

    def _send(self) -> None:
        self._stream = self._call = None
        arguments = self._method, self._buffers, self._policy.timeout, self._reply_size
        try:
            self._stream = self._connection.send(*arguments)
            if self._stream is None:
                self._call = self._threads.submit(self._connection.call, *arguments)
        except RuntimeError:  # Python is exiting and starts no more threads
            self._call = Future()
            try:
                self._call.set_result(self._connection.call(*arguments))
            except grpc.RpcError as error:
                self._call.set_exception(error)

    def _watch(self) -> None:
        """Has a failure noticed before the reply is collected."""
        # Streams and futures keep what they call. A strong reference would keep the reply, which may be large.
        retry = weakref.WeakMethod(self._retry_early)
        if self._stream is not None:
            self._stream.on_failure(lambda: _call(retry))
        elif self._call is not None:
            self._call.add_done_callback(lambda call: _failed(call) and _call(retry))

    def _retry_early(self) -> None:
        with self._choosing:
            if not self._is_taken:
                self._is_taken = True
                with suppress(RuntimeError):  # Python is exiting: `result` sends again
                    self._retrying = self._threads.submit(self._receive)

    def _receive(self) -> bytes:
        """The reply to the message, which is sent again while the policy allows it."""
        attempt, reason = 0, ""
        while True:
            try:
                if attempt > 0:
                    if self._before_retry is not None:
                        self._before_retry(reason, time.monotonic() - self.began)
                    self._send()
                return self._reply()
            except grpc.RpcError as error:
                if self._is_cancelled or not self._policy.allows(error, time.monotonic() - self.began):
                    raise
                reason = error.code().name
            attempt += 1
            time.sleep(self._policy.pause(attempt))

    def _reply(self) -> bytes:
        if self._stream is None:
            assert self._call is not None
            return self._call.result()
        try:
            reply = self._stream.receive()
        except BaseException:
            self._release(None)
            raise
        self._release(reply)
        return reply

    def _release(self, reply: bytes | None) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self._connection.release(self._method, stream, reply)


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = method()
    if found is not None:
        found()


def _failed(call: Future[bytes]) -> bool:
    return not call.cancelled() and call.exception() is not None
