"""Keeps the memory of messages in this process: every step needs as much as the one before."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

# Numbers of <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MOST = 2**31 - 1
# Every one keeps the memory of its largest messages. A process that has computed already has eight for each core, which
# XLA's threads have made, and they stay in use.
_ARENAS = 2
_LARGEST_MESSAGE = 32 << 20  # the most that every version of glibc accepts for the second


def keep_freed_memory() -> None:
    """Has malloc reuse the memory of one message for the next.

    By default glibc returns large blocks to the system at once, and page faults of new ones take a quarter of the time
    of a 10 MB exchange. With other C libraries this does nothing.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
        mallopt(_TRIM_THRESHOLD, _MOST)
        mallopt(_MMAP_THRESHOLD, _LARGEST_MESSAGE)


def give_back_freed_memory(more_than: int) -> None:
    """Returns memory that malloc keeps to the system, if there are more than so many bytes of it.

    Blocks of messages of many callers are freed between others that stay, and what is kept of them may become several
    times what is in use.
    """
    count, trim = _function("mallinfo2"), _function("malloc_trim")
    if count is not None and trim is not None:
        count.restype = _Counts
        if count().fordblks > more_than:
            trim(0)


class _Counts(ctypes.Structure):
    """``struct mallinfo2``; ``fordblks`` are free bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


@cache
def _function(name: str) -> Any:
    """A function of glibc; None with other C libraries."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
