"""This process among the ranks of its job: says that it is alive and how far it is, and hears when another one is not.

Ranks meet in steps and in `agree`. A rank that dies, fails, hangs or brings something else is named in the error that
all others raise where they meet. XLA cannot be interrupted while it waits for a rank, so a process that does not get to
raise the error is ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from refluid import access
from refluid.errors import RankError
from refluid.ir.whereabouts import find
from refluid.log import Log
from refluid.runtime.collective.hub import TAKEN, TICK
from refluid.runtime.collective.lines import Lines, Message, encode
from refluid.runtime.collective.roster import Patience, silent_for
from refluid.runtime.collective.work import Work

GRACE = 5.0  # seconds that this process has to raise the error before it is ended
_VERDICT = 10.0  # seconds after a failed collective until it is known who has failed
_CONNECT_EVERY = 0.2
_LISTEN = 5 * TICK  # seconds in which the hub should say something
_REMIND_EVERY = 5.0
_ANSWER = 30.0  # seconds for the answer to a greeting
_LONGEST_CHALLENGE = 1024  # bytes
_REFUSED = 30.0  # seconds to be refused by whatever is at the first endpoint; a job that ends there takes less


class Group:
    """The connection of one rank to the hub.

    Args:
      endpoints: of all ranks; the hub is at the first one.
      rank: the number of this process.
      patience: how long to reach the hub, and to wait for a sign of life from it.
      end_process: called if this process cannot raise an error.
      cannot_join: why this rank only connects in order to tell the others that it cannot join.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        rank: int,
        patience: Patience,
        end_process: Callable[[int], Any] = os._exit,
        cannot_join: str | None = None,
    ):
        self.rank, self.endpoints = rank, tuple(endpoints)
        self.failure: RankError | None = None
        self.on_accelerators = False  # which compute while this process waits
        self._hub_left: RankError | None = None
        self._log = Log(role="trainer", rank=rank)
        self._end_process = end_process
        self._entered = self._done = self._steps = 0
        self._at = ""
        self._told, self._left, self._cannot_join = cannot_join is not None, False, cannot_join
        self._changed = threading.Condition()
        self._welcome: Message | None = None
        self._agreed = self._parted = False
        self._largest: list[int] | None = None
        self._sending = threading.Lock()
        self._thread = threading.get_ident()  # the one that meets others
        self._work = Work()
        self._silence = patience.silence
        self._socket = self._connect(patience.joining)
        self._socket.settimeout(_LISTEN)
        self._stop_beating = threading.Event()
        for work in (self._listen, self._beat):
            threading.Thread(target=work, name=f"collective-{work.__name__}", daemon=True).start()

    @property
    def count(self) -> int:
        """How many ranks there are."""
        return len(self.endpoints)

    @property
    def is_broken(self) -> bool:
        """Whether ranks are gone that were needed."""
        return self.failure is not None or self._hub_left is not None or self._told

    @property
    def steps(self) -> int:
        """How many steps this rank has begun."""
        return self._steps

    def await_all(self) -> Message:
        """Returns when all ranks are here: what rank 0 tells everybody.

        Raises:
          RankError: one is missing, or has other endpoints.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._welcome is not None or self.failure is not None)
        self._check()
        assert self._welcome is not None
        return self._welcome

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Runs what is inside as a step in which all ranks meet.

        Raises:
          RankError: another rank has failed or is gone.
        """
        self._steps += 1
        with self._meeting(f"step {self._steps}"):
            try:
                yield
            except (RuntimeError, ValueError) as error:  # what JAX raises depends on who waits for the result
                if not _is_of_a_collective(error):
                    raise
                with self._changed:
                    self._changed.wait_for(lambda: self.failure is not None or self._hub_left is not None, _VERDICT)
                self._check(error)
                raise

    def agree(self, what: str, lines: Sequence[str]) -> None:
        """Returns when all ranks have brought the same lines.

        Raises:
          RankError: a rank brings others; the message has the first one that differs.
        """
        with self._meeting(f"the check of the {what}"):
            with self._changed:
                self._agreed = False
            self._send({"note": what, "lines": list(lines)})
            with self._changed:
                self._changed.wait_for(lambda: self._agreed or self.failure is not None or self._hub_left is not None)
            if not self._agreed:
                self._check()

    def largest(self, what: str, sizes: Sequence[int]) -> list[int]:
        """The largest of each size that any rank has; ``what`` they are sizes of must be the same on all.

        Raises:
          RankError: a rank has something else.
        """
        with self._meeting(f"the sizes of {what}"):
            with self._changed:
                self._largest = None
            self._send({"of": what, "sizes": list(sizes)})
            with self._changed:
                known = lambda: self._largest is not None or self.failure is not None or self._hub_left is not None  # noqa: E731
                self._changed.wait_for(known)
            if self._largest is None:
                self._check()
            assert self._largest is not None
            return self._largest

    def fail(self, reason: str) -> None:
        """Tells the others that this process fails."""
        if self.failure is None and not self._left:
            self._told = True
            self._send({"failed": reason})

    def leave(self, seconds: float = GRACE) -> None:
        """Ends the connection, when the others no longer need this rank. Calling it again does nothing."""
        if self._left:
            return
        if self.failure is None and self._hub_left is None and not self._told:
            self._send(self._state())
            self._left = True
            self._send({"left": True})
            with self._changed:
                over = lambda: self._parted or self.failure is not None or self._hub_left is not None  # noqa: E731
                self._changed.wait_for(over, seconds)
        self._left = True
        self._stop_beating.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @contextlib.contextmanager
    def _meeting(self, name: str) -> Iterator[None]:
        self._check()
        self._at, self._thread = name, threading.get_ident()
        self._entered += 1
        try:
            yield
        finally:
            self._done += 1

    def _check(self, cause: BaseException | None = None) -> None:
        error = self.failure or self._hub_left
        if error is not None:
            self._told = True
            raise error from cause

    def _connect(self, deadline: float) -> socket.socket:
        host, _, port = self.endpoints[0].rpartition(":")
        began = reminded = time.monotonic()
        refused: float | None = None  # since when something is there that does not take this rank
        while True:
            try:
                return self._say_hello(socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER))
            except OSError as error:
                now, reason = time.monotonic(), error.strerror or error
                if isinstance(error, _RefusedError):
                    refused = refused or now
                    if now - refused >= error.retry_for:
                        problem = f"is not there: {error}; is the port that of another program or job?"
                        raise RankError(self.rank, 0, self.endpoints[0], problem) from error
                else:
                    refused = None
                if now - began > deadline:
                    problem = f"cannot be reached for {now - began:.0f} s: {reason}"
                    raise RankError(self.rank, 0, self.endpoints[0], problem) from error
                if now - reminded > _REMIND_EVERY:
                    reminded = now
                    self._log.warning("waiting for rank 0", at=self.endpoints[0], reason=reason)
                time.sleep(_CONNECT_EVERY)

    def _say_hello(self, connection: socket.socket) -> socket.socket:
        """The connection, if the hub takes this rank.

        Raises:
          _RefusedError: whatever is there does not: a stranger, or the hub of a job that is just ending.
        """
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello: Message = {"rank": self.rank, "endpoint": self.endpoints[self.rank], "endpoints": self.endpoints}
        hello["cannot_join"], hello["nonce"] = self._cannot_join, secrets.token_hex(16)
        try:
            connection.sendall(encode({"hello": hello}))
            self._show_token(connection, hello["nonce"])
            answer = connection.recv(len(TAKEN), socket.MSG_WAITALL)
            if answer == TAKEN:
                return connection
            if answer:
                raise _RefusedError("what listens there speaks another protocol", retry_for=0)
            raise _RefusedError("what listens there closes the connection", retry_for=_REFUSED)
        except TimeoutError as error:
            connection.close()
            raise _RefusedError(f"what listens there says nothing for {_ANSWER:.0f} s", retry_for=0) from error
        except OSError:
            connection.close()
            raise

    def _show_token(self, connection: socket.socket, nonce: str) -> None:
        """Answers the hub's question for the token, and makes sure that the hub has it, too."""
        first = connection.recv(1, socket.MSG_PEEK)
        if first != b"{":
            if first == TAKEN[:1] and access.tokens():
                raise _RefusedError("what listens there knows no token (FLAGS_rpc_token)", retry_for=0)
            return
        if not access.tokens():
            raise _RefusedError("what listens there asks for a token (FLAGS_rpc_token)", retry_for=0)
        line = b""
        while not line.endswith(b"\n") and len(line) < _LONGEST_CHALLENGE and (byte := connection.recv(1)):
            line += byte
        try:
            (challenge,) = Lines().feed(line)
        except ValueError:
            raise _RefusedError("what listens there speaks another protocol", retry_for=0) from None
        if not access.is_proof(challenge.get("proof"), "hub", nonce):
            raise _RefusedError("what listens there has another token (FLAGS_rpc_token)", retry_for=0)
        connection.sendall(encode({"proof": access.prove("rank", str(challenge.get("challenge")))}))

    def _send(self, message: Message) -> None:
        with self._sending, contextlib.suppress(OSError):  # whoever listens sees that the connection is gone
            self._socket.sendall(encode(message))

    def _state(self) -> Message:
        line, in_script = find(self._thread)
        works, computes = self._work.look(in_script)
        on_device = self.on_accelerators and self._entered > self._done and not in_script
        state = {
            "entered": self._entered,
            "done": self._done,
            "at": self._at,
            "where": line,
            "in_script": in_script,
            "works": works or on_device,
            "computes": computes or on_device,
        }
        return {"beat": state}

    def _beat(self) -> None:
        while not self._stop_beating.wait(TICK):
            self._send(self._state())

    def _listen(self) -> None:
        lines, problem = Lines(), "has ended without leaving: it crashed or was killed; see its log"
        silence = 0.0  # counted in pieces, so that the time for which this process was suspended does not count
        while True:
            try:
                data = self._socket.recv(1 << 16)
                messages, silence = list(lines.feed(data)), 0.0
            except TimeoutError:
                silence += _LISTEN
                if silence < self._silence:
                    continue
                data, messages, problem = b"", [], silent_for(silence)
            except (OSError, ValueError):
                data, messages = b"", []
            for message in messages:
                self._handle(message)
            if not data:
                break
        if not self._left and self._hub_left is None:
            self._fail({"rank": 0, "endpoint": self.endpoints[0], "problem": problem})
        self._stop_beating.set()

    def _handle(self, message: Message) -> None:
        if "awaited" in message:
            awaited, seconds = message["awaited"], message["seconds"]
            self._log.warning("waiting for other ranks", awaited=awaited, seconds=seconds, at=message.get("at"))
        if "end" in message:
            self._fail(message["end"])
        with self._changed:
            self._welcome = message.get("welcome", self._welcome)
            self._agreed = self._agreed or "agreed" in message
            self._largest = message.get("largest", self._largest)
            self._parted = self._parted or "parted" in message
            if "hub_left" in message:
                problem = f"has ended after {message['hub_left']} steps: all ranks must run the same number of steps"
                self._hub_left = RankError(self.rank, 0, self.endpoints[0], problem)
            self._changed.notify_all()

    def _fail(self, end: Message) -> None:
        with self._changed:
            if self.failure is not None:
                return
            self.failure = RankError(self.rank, end["rank"], end["endpoint"], end["problem"])
            self._changed.notify_all()
        if end["rank"] != self.rank or not self._told:
            self._log.error("the job has failed", reason=str(self.failure))
            threading.Thread(target=self._end_unless_told, name="collective-end", daemon=True).start()

    def _end_unless_told(self) -> None:
        """Ends this process if nothing in it can raise the error: XLA may wait for a rank forever."""
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            if self._told or self._left:
                return
            time.sleep(0.1)
        print(f"RankError: {self.failure}; ending this process", file=sys.stderr, flush=True)
        sys.stdout.flush()
        self._end_process(1)


class _RefusedError(OSError):
    """Something listens at the first endpoint that does not take this rank; worth ``retry_for`` seconds."""

    def __init__(self, problem: str, retry_for: float):
        super().__init__(problem)
        self.retry_for = retry_for


def _is_of_a_collective(error: Exception) -> bool:
    text = str(error)
    return any(word in text for word in ("Gloo", "NCCL", "nccl", "collective"))
