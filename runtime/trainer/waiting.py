"""Log lines about waiting: whom a trainer waits for and since when, every few seconds, and that it has resumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from refluid.log import Log

_FIRST_REMINDER = 8.0  # seconds; a server that waits for others replies sooner than that
_REMINDER_INTERVAL = 5.0


class Wait:
    """One thread's wait for the reply of a server."""

    __slots__ = ("is_logged", "last_news", "server", "since")

    def __init__(self, server: str):
        self.server = server
        self.since = self.last_news = time.monotonic()
        self.is_logged = False


class WaitLog:
    """The waits of a trainer's threads, for the log.

    Args:
      log: where the lines go.
      step: gives the number of the training step.
    """

    def __init__(self, log: Log, step: Callable[[], int]):
        self._log, self._step = log, step
        self._waits: set[Wait] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="wait-log", daemon=True)

    def start(self) -> None:
        """Starts to report servers that do not reply."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the reports."""
        self._stopped.set()
        self._thread.join()

    def begin(self, server: str) -> Wait:
        """A thread begins to wait for a server's reply."""
        wait = Wait(server)
        self._waits.add(wait)
        return wait

    def pending(self, wait: Wait, awaited: Sequence[str]) -> None:
        """The server has replied that it waits itself, for those ``awaited``."""
        self._report(wait, time.monotonic(), "waiting for other trainers", awaited=", ".join(awaited) or None)

    def end(self, wait: Wait, *, replied: bool) -> None:
        """The wait is over; if it was reported, so is its end."""
        self._waits.discard(wait)
        if wait.is_logged and replied:
            self._log.warning(
                f"resumed after {time.monotonic() - wait.since:.0f} s", server=wait.server, step=self._step()
            )

    def remind(self, now: float) -> None:
        """Reports the servers that have not replied for a while."""
        for wait in list(self._waits):
            if now - wait.last_news > (_REMINDER_INTERVAL if wait.is_logged else _FIRST_REMINDER):
                self._report(wait, now, "waiting for a server that does not reply")

    def _report(self, wait: Wait, now: float, message: str, **fields: object) -> None:
        wait.last_news, wait.is_logged = now, True
        seconds = round(now - wait.since, 1)
        self._log.warning(message, **fields, server=wait.server, step=self._step(), seconds=seconds)

    def _watch(self) -> None:
        while not self._stopped.wait(1.0):
            self.remind(time.monotonic())
