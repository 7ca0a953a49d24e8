"""Fed arrays, laid where XLA can read them in place.

XLA reads a NumPy array in place if its address is a multiple of 64, which NumPy's large arrays never are. The others
it copies: small ones at once, large ones on another thread, whose start and end cost several times the copy itself, and
the step then runs on that thread as well. A copy into a buffer that is kept from step to step avoids all of it.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

ALIGNMENT = 64
COPIED_AT_ONCE = 100_000  # bytes; XLA copies what is smaller without a thread


class Staging(threading.local):
    """Buffers for the arrays of one step, whose shapes do not change.

    A step must have ended before the next begins, except on another thread: each has buffers of its own.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, np.ndarray] = {}

    def __call__(self, index: int, value: Any) -> Any:
        """``value``, or a copy of it that XLA reads in place; ``index`` tells the step's values apart."""
        if value.__class__ is not np.ndarray or value.nbytes < COPIED_AT_ONCE:
            return value
        if phase_of(value) == 0 and value.flags.c_contiguous:
            return value
        buffer = self._buffers.get(index)
        if buffer is None:
            buffer = self._buffers[index] = aligned(value.shape, value.dtype)
        np.copyto(buffer, value)
        return buffer


def unstaged(index: int, value: Any) -> Any:
    """What `Staging` is on devices that have memory of their own."""
    return value


def phase_of(array: np.ndarray) -> int:
    """How many bytes an array lies behind a place where XLA could read it."""
    return _address(array) % ALIGNMENT


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@partial(jax.tree_util.register_dataclass, data_fields=["memory", "start"], meta_fields=["shape"])
@dataclass(frozen=True)
class Shifted:
    """An array that begins within a longer one, which XLA can read in place. Compiled pieces take it for the array.

    An operation that goes through the elements once reads them where they are; what needs an array of its own copies.
    """

    memory: Any
    start: Any
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: np.ndarray) -> Any:
        """``array`` as part of the array that it is a view of; the array itself where that is no use."""
        base = array.base
        if array.nbytes < COPIED_AT_ONCE or not isinstance(base, np.ndarray) or base.ndim != 1:
            return array
        if phase_of(base) or base.dtype != array.dtype or not (base.flags.c_contiguous and array.flags.c_contiguous):
            return array
        start = (_address(array) - _address(base)) // base.itemsize
        return cls(base, np.int32(start), array.shape) if start < 1 << 31 else array

    def array(self) -> Any:
        """The array, inside a computation."""
        return lax.dynamic_slice_in_dim(self.memory, self.start, math.prod(self.shape)).reshape(self.shape)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array that XLA can read in place."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -phase_of(memory) % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
