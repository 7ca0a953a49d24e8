"""When a process of a job that has failed is started again: decisions only, time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field

FORGET_AFTER = 600.0  # seconds; a process that has run for so long has its restarts back
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


@dataclass
class Restarts:
    """The restarts of one member.

    Args:
        allowed: how many in a row.
    """

    allowed: int
    used: int = 0
    due: float | None = field(default=None, init=False)  # when the next life begins
    code: int = field(default=0, init=False)  # the exit code of the last life

    def fail(self, now: float, lived: float, code: int) -> float | None:
        """A life has ended with a failure after so many seconds; the pause until the next, or None if there is none."""
        self.code = code
        if lived >= FORGET_AFTER:
            self.used = 0
        if self.used >= self.allowed:
            return None
        pause = min(_FIRST_PAUSE * 2**self.used, _LONGEST_PAUSE)
        self.used += 1
        self.due = now + pause
        return pause

    def is_due(self, now: float) -> bool:
        """Whether the next life is to begin now."""
        return self.due is not None and now >= self.due
