"""Fed arrays, laid where XLA can read them in place.

XLA reads a NumPy array in place if its address is a multiple of 64, which NumPy's large arrays never are. The others
it copies: small ones at once, large ones on another thread, whose start and end cost several times the copy itself, and
the step then runs on that thread as well. A copy into a buffer that is kept from step to step avoids all of it.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

_ALIGNMENT = 64
_COPIED_AT_ONCE = 100_000  # bytes; XLA copies what is smaller without a thread


class Staging(threading.local):
    """Buffers for the arrays of one step, whose shapes do not change.

    A step must have ended before the next begins, except on another thread: each has buffers of its own.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, np.ndarray] = {}

    def __call__(self, index: int, value: Any) -> Any:
        """``value``, or a copy of it that XLA reads in place; ``index`` tells the step's values apart."""
        if value.__class__ is not np.ndarray or value.nbytes < _COPIED_AT_ONCE:
            return value
        if value.__array_interface__["data"][0] % _ALIGNMENT == 0 and value.flags.c_contiguous:
            return value
        buffer = self._buffers.get(index)
        if buffer is None:
            buffer = self._buffers[index] = aligned(value.shape, value.dtype)
        np.copyto(buffer, value)
        return buffer


def unstaged(index: int, value: Any) -> Any:
    """What `Staging` is on devices that have memory of their own."""
    return value


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array that XLA can read in place."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
