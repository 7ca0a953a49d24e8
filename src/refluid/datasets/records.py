"""Records: samples in binary form, in blocks of memory, in any order.

A record tells its own length, so an order is nothing but an array of addresses: shuffling permutes it, and a batch is a
part of it. The blocks stay where they are and live as long as the addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refluid.datasets.schema import Schema


@dataclass(frozen=True)
class Records:
    """Some records, in an order.

    Attributes:
      places: the address of every record.
      blocks: the memory that they lie in.
      files: what they were read from, where that is known; for messages.
    """

    schema: Schema
    places: np.ndarray
    blocks: tuple[np.ndarray, ...]
    files: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: slice | np.ndarray) -> Records:
        """The records of a slice, a mask, or an array of indices."""
        return Records(self.schema, self.places[index], self.blocks, self.files)

    @property
    def nbytes(self) -> int:
        """The memory that the records and their order take."""
        return self.places.nbytes + sum(block.nbytes for block in self.blocks)

    @classmethod
    def none(cls, schema: Schema) -> Records:
        return cls(schema, np.empty(0, np.int64), ())

    @classmethod
    def join(cls, schema: Schema, parts: Iterable[Records]) -> Records:
        """All records of the parts, in their order."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        places = np.concatenate([np.empty(0, np.int64), *(part.places for part in parts)])
        files = tuple(dict.fromkeys(file for part in parts for file in part.files))
        return cls(schema, places, tuple(block for part in parts for block in part.blocks), files)

    @classmethod
    def of_bytes(cls, schema: Schema, data: bytes | np.ndarray, count: int) -> Records:
        """The records that `pack` made ``data`` of; it is used, not copied.

        Raises:
          ValueError: they are not as many, or not of this schema.
        """
        block = np.frombuffer(data, np.uint8)
        possible = count <= len(block)  # every record has bytes; those who claim more get no memory for them
        places, begin = np.empty(count if possible else 0, np.int64), block.ctypes.data
        if not possible or _kernels().find(begin, begin + len(block), schema.kinds, places) != begin + len(block):
            raise ValueError(f"expected {count} records of {len(schema)} slots in {len(block)} bytes; they do not fit")
        return cls(schema, places, (block,))

    def keys(self) -> np.ndarray | None:
        """The hash of each record's line id; None if lines have none. Records of a key belong together."""
        if not self.schema.has_line_id:
            return None
        keys = np.empty(len(self), np.int64)
        _kernels().first_ids(np.ascontiguousarray(self.places), self.schema.kinds, keys)
        return keys

    def pack(self) -> np.ndarray:
        """A copy of these records in their order, in one block of bytes."""
        places, sizes = np.ascontiguousarray(self.places), np.empty(len(self), np.int64)
        block = np.empty(_kernels().measure(places, self.schema.kinds, sizes), np.uint8)
        _kernels().pack(places, sizes, block.ctypes.data)
        return block


def _kernels() -> Any:
    from refluid.datasets.kernels import records as kernels  # loads numba: slow

    return kernels
