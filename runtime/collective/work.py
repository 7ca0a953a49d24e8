"""Signs that a process gets on with its work, so that others do well to wait for it.

A heartbeat shows that a process lives, and processor time that it does something; an endless loop has both. So calls
of refluid count as work while they use the processor, read or write: programs are compiled and run, checkpoints saved.
What the script does itself counts only while it reads.
"""

from __future__ import annotations

import time
from typing import NamedTuple

_BUSY = 0.02  # the share of a processor from which on a process computes
_BYTES = 4096  # read or written from one look to the next; looking itself reads a few


class _Used(NamedTuple):
    """What the process has used so far."""

    at: float
    processor: float
    read: int
    written: int


class Work:
    """Compares what this process has used with what it had used at the last look."""

    def __init__(self) -> None:
        self._before = _used()

    def look(self, in_script: bool) -> tuple[bool, bool]:
        """Whether there was a sign of work since the last look, and whether the process has computed.

        Args:
          in_script: whether the script itself executes, rather than a call of refluid.
        """
        before, now = self._before, _used()
        self._before = now
        computes = now.processor - before.processor > _BUSY * (now.at - before.at)
        reads = now.read - before.read >= _BYTES
        writes = now.written - before.written >= _BYTES
        return reads or (not in_script and (computes or writes)), computes


def _used() -> _Used:
    read = written = 0
    try:
        with open("/proc/self/io") as file:
            counters = dict(line.split(": ") for line in file)
        read, written = int(counters["rchar"]), int(counters["wchar"])
    except (OSError, KeyError, ValueError):  # only Linux counts, and not in every container
        pass
    return _Used(time.monotonic(), time.process_time(), read, written)
