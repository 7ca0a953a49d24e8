"""Memory for records whose size is not known before they are written."""

from __future__ import annotations

import numpy as np

from refluid.datasets.records import Records
from refluid.datasets.schema import Schema

_FULL = 0.8  # a block that is filled to this part is handed over as it is; records of another are copied


class Arena:
    """A block of memory that records are appended to.

    Args:
      size: of a block, in bytes; it is larger if more has to be reserved at once. A large block saves copies and page
        faults, but holds what remains of it.
    """

    def __init__(self, schema: Schema, size: int = 0):
        self._schema, self._size = schema, size
        self._block = np.empty(0, np.uint8)
        self._begin = self._end = 0  # addresses: of the block, and behind the last record
        self._places: list[np.ndarray] = []

    def has_room(self, size: int) -> bool:
        """Whether this many bytes can be reserved without taking the records first."""
        return not self._places or self._begin + len(self._block) - self._end >= size

    def reserve(self, size: int) -> int:
        """Provides this many bytes at least, and returns the address of the first."""
        assert self.has_room(size)
        if not self._places and len(self._block) < size:
            self._block = np.empty(max(size, self._size), np.uint8)
            self._begin = self._end = self._block.ctypes.data
        return self._end

    def append(self, places: np.ndarray, end: int) -> None:
        """Notes records that were written, and the address behind them."""
        self._places.append(places)
        self._end = end

    def write(self, address: int, data: bytes) -> None:
        """Overwrites bytes."""
        start = address - self._begin
        self._block[start : start + len(data)] = np.frombuffer(data, np.uint8)

    def take(self) -> Records:
        """All records so far, which leave the arena."""
        places = np.concatenate([np.empty(0, np.int64), *self._places])
        used = self._end - self._begin
        if used >= _FULL * len(self._block):
            block, self._block = self._block, np.empty(0, np.uint8)
            self._begin = 0
        else:
            block = self._block[:used].copy()
            places += block.ctypes.data - self._begin
        self._places, self._end = [], self._begin
        return Records(self._schema, places, (block,))
