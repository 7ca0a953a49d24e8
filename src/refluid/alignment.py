"""Arrays at addresses that XLA reads in place: multiples of 64, which large NumPy arrays never have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64
COPIED_AT_ONCE = 100_000  # bytes; XLA copies smaller arrays without a thread, so it does not matter where they are


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Allocates an uninitialised array that XLA can read in place."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -phase_of(memory) % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def aligned_copy(value: Any) -> np.ndarray:
    """Copies an array, to where XLA can read it in place if it is large."""
    array = np.asarray(value)
    if array.nbytes < COPIED_AT_ONCE or array.dtype == object:
        return array.copy()
    copy = aligned(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def phase_of(array: np.ndarray) -> int:
    """Returns the distance in bytes of an array from the aligned address before it."""
    return address_of(array) % ALIGNMENT


def address_of(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
