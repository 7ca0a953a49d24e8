"""Bytes out of streams, into room that JAX takes as an array without a copy."""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np

_ALIGNMENT = 64  # from which JAX takes an array as it is


def left(stream: BinaryIO) -> int:
    """How many bytes a stream still has."""
    position = stream.tell()
    end = stream.seek(0, os.SEEK_END)
    stream.seek(position)
    return end - position


def read_aligned(stream: BinaryIO, size: int) -> np.ndarray:
    """The next ``size`` bytes, of which there must be as many; see `left`.

    Raises:
      EOFError: the stream ends before.
    """
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    array = room[start : start + size]
    view, done = array.data, 0
    while done < size:
        count = stream.readinto(view[done:])  # pyright: ignore[reportAttributeAccessIssue] - every real stream has it
        if not count:
            raise EOFError(f"{size} bytes are missing, {done} are left")
        done += count
    return array
