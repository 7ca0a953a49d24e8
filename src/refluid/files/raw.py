"""Reads bytes into memory that JAX can use as an array without a copy."""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np

from refluid.alignment import aligned


def left(stream: BinaryIO) -> int:
    """How many bytes are left in a stream."""
    position = stream.tell()
    end = stream.seek(0, os.SEEK_END)
    stream.seek(position)
    return end - position


def read_aligned(stream: BinaryIO, size: int) -> np.ndarray:
    """The next ``size`` bytes; check with `left` first that there are as many.

    Raises:
      EOFError: the stream ends earlier.
    """
    array = aligned((size,), np.dtype(np.uint8))
    view, done = array.data, 0
    while done < size:
        count = stream.readinto(view[done:])  # pyright: ignore[reportAttributeAccessIssue] - every real stream has it
        if not count:
            raise EOFError(f"{size} bytes are missing, {done} are left")
        done += count
    return array
