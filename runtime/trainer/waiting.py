"""What a trainer waits for: lines about whom and since when, every few seconds, and that it has resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from refluid.log import Log
from refluid.runtime.observe.waits import Wait, server_name

_FIRST_REMINDER = 8.0  # seconds; a server that waits for others replies sooner than that
_REMINDER_INTERVAL = 5.0


class Waiting:
    """One thread's wait for the reply of a server."""

    __slots__ = ("awaited", "heard", "is_logged", "last_news", "problem", "server", "since")

    def __init__(self, server: str):
        self.server = server
        self.since = self.last_news = self.heard = time.monotonic()
        self.is_logged = False
        self.awaited: Sequence[str] = ()  # those for whom the server waits itself
        self.problem = ""


class WaitLog:
    """The waits of a trainer's threads, for the log and for others.

    Args:
      name: of the trainer.
      log: where the lines go.
      step: gives the number of the training step.
    """

    def __init__(self, name: str, log: Log, step: Callable[[], int]):
        self._name, self._log, self._step = name, log, step
        self._waits: set[Waiting] = set()
        self.missing: dict[str, str] = {}  # servers that have not been joined yet, and why
        self.began = time.monotonic()
        self.over = 0  # waits that have ended with a reply

    def begin(self, server: str) -> Waiting:
        """A thread begins to wait for a server's reply."""
        wait = Waiting(server)
        self._waits.add(wait)
        return wait

    def pending(self, wait: Waiting, awaited: Sequence[str]) -> None:
        """The server has replied that it waits itself, for those ``awaited``."""
        wait.awaited, wait.heard, wait.problem = awaited, time.monotonic(), ""
        self._report(wait, wait.heard, "waiting for other trainers", awaited=", ".join(awaited) or None)

    def failed(self, server: str, problem: str) -> None:
        """A request to a server has failed, and is sent again."""
        for wait in list(self._waits):
            if wait.server == server:
                wait.problem = problem

    def end(self, wait: Waiting, *, replied: bool) -> None:
        """The wait is over; if it was reported, so is its end."""
        self._waits.discard(wait)
        self.over += replied
        if wait.is_logged and replied:
            self._log.warning(
                f"resumed after {time.monotonic() - wait.since:.0f} s", server=wait.server, step=self._step()
            )

    def remind(self, now: float) -> None:
        """Reports the servers that have not replied for a while."""
        for wait in list(self._waits):
            if now - wait.last_news > (_REMINDER_INTERVAL if wait.is_logged else _FIRST_REMINDER):
                self._report(wait, now, "waiting for a server that does not reply")

    def for_servers(self, now: float) -> list[Wait]:
        """Waits for servers that do not reply."""
        found = [
            Wait((self._name,), "a reply", (server_name(wait.server),), now - wait.since, wait.problem)
            for wait in list(self._waits)
            if now - wait.heard > _FIRST_REMINDER or wait.problem
        ]
        return found + [
            Wait((self._name,), "servers to join", (server_name(endpoint),), now - self.began, problem)
            for endpoint, problem in list(self.missing.items())
        ]

    def for_trainers(self, now: float) -> list[Wait]:
        """Waits for servers that wait for other trainers, as they describe them."""
        return [
            Wait(
                (self._name,), f"{server_name(wait.server)}, which waits itself", tuple(wait.awaited), now - wait.since
            )
            for wait in list(self._waits)
            if wait.awaited and now - wait.heard <= _FIRST_REMINDER and not wait.problem
        ]

    def __len__(self) -> int:
        return len(self._waits)

    def _report(self, wait: Waiting, now: float, message: str, **fields: object) -> None:
        wait.last_news, wait.is_logged = now, True
        seconds = round(now - wait.since, 1)
        self._log.warning(message, **fields, server=wait.server, step=self._step(), seconds=seconds)
