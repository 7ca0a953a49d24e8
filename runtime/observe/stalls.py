"""When a process that does not get on says so: decisions only, time is an argument."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

_LONGEST = 600.0  # seconds between two reports


class Stall(NamedTuple):
    """What there is to report: nothing moves for so many seconds, or it is over."""

    seconds: float
    is_over: bool


class Stalls:
    """Notices when something is waited for and nothing moves; reports once, and again after growing pauses.

    Args:
      interval: seconds until the first report.
    """

    def __init__(self, interval: float, now: float):
        self._interval = interval
        self._progress: Hashable = None
        self._moves(None, now)

    def look(self, now: float, progress: Hashable, *, waits: bool) -> Stall | None:
        """What to report, if anything.

        Args:
          progress: anything that changes when the process gets on.
          waits: whether something is waited for; without, there is no stall however little moves.
        """
        if progress != self._progress or not waits:
            stall = Stall(now - self._since, is_over=True) if self._is_reported else None
            self._moves(progress, now)
            return stall
        if now < self._due:
            return None
        self._is_reported = True
        self._pause = min(2 * self._pause, max(_LONGEST, self._interval))
        self._due = now + self._pause
        return Stall(now - self._since, is_over=False)

    def _moves(self, progress: Hashable, now: float) -> None:
        self._progress, self._since, self._is_reported = progress, now, False
        self._pause, self._due = self._interval / 2, now + self._interval
