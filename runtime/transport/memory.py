"""Keeps the memory of messages in this process: every step needs as much as the one before."""

from __future__ import annotations

import ctypes
import sys

# Numbers of <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MOST = 2**31 - 1
_ARENAS = 2  # every one keeps the memory of its largest messages, and threads would have eight for each core
_LARGEST_MESSAGE = 32 << 20  # the most that every version of glibc accepts for the second


def keep_freed_memory() -> None:
    """Has malloc reuse the memory of one message for the next.

    By default glibc returns large blocks to the system at once, and page faults of new ones take a quarter of the time
    of a 10 MB exchange. With other C libraries this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
        mallopt(_TRIM_THRESHOLD, _MOST)
        mallopt(_MMAP_THRESHOLD, _LARGEST_MESSAGE)
