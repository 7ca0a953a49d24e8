"""Staging: fed arrays in memory that XLA reads in place.

XLA reads a NumPy array in place if its address is a multiple of 64, which large NumPy arrays never are. It copies the
others: small ones immediately, large ones on another thread, where the step then runs as well; starting and joining
that thread costs several times the copy. Copying into an aligned buffer that is kept between steps avoids all of this.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from refluid.alignment import COPIED_AT_ONCE, address_of, aligned, aligned_copy, phase_of
from refluid.ops.core.values import Ragged


class Staging(threading.local):
    """Buffers for the arrays of one step, whose shapes do not change.

    A step must end before the next one begins on the same thread; each thread has its own buffers.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, np.ndarray] = {}

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Returns the values of a step, with large unaligned arrays copied so that XLA reads them in place."""
        return [
            self._copy(index, value)
            if value.__class__ is np.ndarray and value.nbytes >= COPIED_AT_ONCE and not _is_read_in_place(value)
            else value
            for index, value in enumerate(values)
        ]

    def _copy(self, index: int, value: np.ndarray) -> np.ndarray:
        buffer = self._buffers.get(index)
        if buffer is None:
            buffer = self._buffers[index] = aligned(value.shape, value.dtype)
        np.copyto(buffer, value)
        return buffer


def readable_in_place(values: Sequence[Any]) -> list[Any]:
    """Returns values with large unaligned arrays copied, those in sequences too; unlike staged ones, they are kept."""
    return [replace(v, data=_realigned(v.data)) if isinstance(v, Ragged) else _realigned(v) for v in values]


def _realigned(value: Any) -> Any:
    if value.__class__ is not np.ndarray or value.nbytes < COPIED_AT_ONCE or _is_read_in_place(value):
        return value
    return aligned_copy(value)


def unstaged(values: Sequence[Any]) -> Sequence[Any]:
    """Replaces `Staging` on devices that have their own memory."""
    return values


def _is_read_in_place(array: np.ndarray) -> bool:
    return phase_of(array) == 0 and array.flags.c_contiguous


@partial(jax.tree_util.register_dataclass, data_fields=["memory", "start"], meta_fields=["shape"])
@dataclass(frozen=True)
class Shifted:
    """An array as part of a longer one that XLA reads in place; compiled pieces accept it instead of the array.

    An operation that reads every element once needs no copy; others make one.
    """

    memory: Any
    start: Any
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: np.ndarray) -> Any:
        """Returns ``array`` as part of the array it is a view of, or itself if that does not help."""
        base = array.base
        if array.nbytes < COPIED_AT_ONCE or not isinstance(base, np.ndarray) or base.ndim != 1:
            return array
        if phase_of(base) or base.dtype != array.dtype or not (base.flags.c_contiguous and array.flags.c_contiguous):
            return array
        start = (address_of(array) - address_of(base)) // base.itemsize
        return cls(base, np.int32(start), array.shape) if start < 1 << 31 else array

    def array(self) -> Any:
        """Returns the array, inside a computation."""
        return lax.dynamic_slice_in_dim(self.memory, self.start, math.prod(self.shape)).reshape(self.shape)
