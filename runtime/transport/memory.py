"""How this process keeps memory for messages: those of one step are as large as those of the last."""

from __future__ import annotations

import ctypes
import sys

# Numbers of <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST = 2**31 - 1
_LARGEST_MESSAGE = 32 << 20  # the most that every version of glibc accepts for the second


def keep_freed_memory() -> None:
    """Lets malloc use the memory of one message for the next.

    By default it takes large blocks from the system and gives them back at once, so that a message is paid for page by
    page: a quarter of the time of an exchange of 10 MB. Only glibc is known to do that, elsewhere this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _MOST)
        mallopt(_MMAP_THRESHOLD, _LARGEST_MESSAGE)
