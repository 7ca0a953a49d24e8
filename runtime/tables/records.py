"""The form of a table's rows: how wide they are, what an optimizer keeps with them, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refluid.runtime.tables.kernels import layout

FLOAT32 = np.dtype(np.float32)
PRECISIONS = {"native": layout.NATIVE, "bfloat16": layout.BFLOAT16, "float16": layout.FLOAT16}


@dataclass(frozen=True)
class RecordForm:
    """What a record holds: an id, the step it is up to date with, a count, weights, and slots of the optimizer.

    Attributes:
      width: how many weights a row has.
      dtype: of weights and slots, float32 or float64.
      slots: the names of the optimizer's states, each as wide as the weights.
      precision: what weights are stored with: "native", or "bfloat16" or "float16" for half the memory.
      has_id: tables of fixed height have no ids: a row is found by its number.
    """

    width: int
    dtype: np.dtype = FLOAT32
    slots: tuple[str, ...] = ()
    precision: str = "native"
    has_id: bool = True
    header: int = field(init=False)  # words before the weights
    words: int = field(init=False)  # of a record

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"a row must have at least one weight, not {self.width}")
        if self.dtype not in (np.float32, np.float64):
            raise TypeError(f"rows are float32 or float64, not {self.dtype}")
        if self.precision not in PRECISIONS or (self.precision != "native" and self.dtype != np.float32):
            raise ValueError(f"weights of {self.dtype} cannot be stored as {self.precision}")
        element = self.dtype.itemsize // 4
        weights = self.width * element if self.precision == "native" else -(-self.width // 2)
        object.__setattr__(self, "header", 4 if self.has_id else 2)
        words = self.header + weights + len(self.slots) * self.width * element
        object.__setattr__(self, "words", words + words % 2)  # ids are read as 8 bytes

    @property
    def bytes(self) -> int:
        """The size of a record."""
        return 4 * self.words

    def weights_of(self, records: np.ndarray) -> np.ndarray:
        """The weights of records, an array of words."""
        if self.precision == "native":
            words = records[:, self.header : self.header + self.width * self.dtype.itemsize // 4]
            return np.ascontiguousarray(words).view(self.dtype)
        halves = np.ascontiguousarray(records[:, self.header :]).view(np.uint16)[:, : self.width]
        if self.precision == "float16":
            return np.ascontiguousarray(halves).view(np.float16).astype(np.float32)
        return (halves.astype(np.uint32) << 16).view(np.float32)

    def columns(self, slot: str | None) -> slice:
        """Which words of a record are a slot, or the weights."""
        element = self.dtype.itemsize // 4
        weights = self.width * element if self.precision == "native" else -(-self.width // 2)
        if slot is None:
            return slice(self.header, self.header + weights)
        begin = self.header + weights + self.slots.index(slot) * self.width * element
        return slice(begin, begin + self.width * element)

    def slot_of(self, records: np.ndarray, name: str) -> np.ndarray:
        """One state of the optimizer for records."""
        return np.ascontiguousarray(records[:, self.columns(name)]).view(self.dtype)

    def ids_of(self, records: np.ndarray) -> np.ndarray:
        """The ids of records."""
        return np.ascontiguousarray(records[:, layout.ID : layout.ID + 2]).view(np.int64).reshape(-1)

    def with_ids(self, ids: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Records of a table of fixed height as a table with ids has them."""
        assert not self.has_id
        return np.concatenate([np.ascontiguousarray(ids, np.int64).view(np.uint32).reshape(-1, 2), records], axis=1)

    def versions_of(self, records: np.ndarray) -> np.ndarray:
        """The steps that records are up to date with."""
        return records[:, self.header + layout.VERSION].astype(np.int64)

    def counts_of(self, records: np.ndarray) -> np.ndarray:
        """How often rows were updated, decayed."""
        return np.ascontiguousarray(records[:, self.header + layout.COUNT]).view(np.float32)

    def packed(self, ids: np.ndarray, weights: np.ndarray, slots: Mapping[str, np.ndarray], like: Any = None) -> Any:
        """Records of rows with these weights and slots; with the versions and counts of ``like``, or with zeros.

        Args:
          like: versions and counts, as `versions_of` and `counts_of` return them.
        """
        versions, counts = like or (np.zeros(len(ids), np.int64), np.zeros(len(ids), np.float32))
        records = np.zeros((len(ids), self.words), np.uint32)
        records[:, layout.ID : layout.ID + 2] = np.ascontiguousarray(ids, np.int64).view(np.uint32).reshape(-1, 2)
        records[:, self.header + layout.VERSION] = versions
        records[:, self.header + layout.COUNT] = np.ascontiguousarray(counts, np.float32).view(np.uint32)
        records[:, self.columns(None)] = self._stored(np.ascontiguousarray(weights, self.dtype))
        for name in self.slots:
            records[:, self.columns(name)] = np.ascontiguousarray(slots[name], self.dtype).view(np.uint32)
        return records

    def _stored(self, weights: np.ndarray) -> np.ndarray:
        """Weights as words, rounded to nearest if they are stored in 16 bits."""
        if self.precision == "native":
            return weights.view(np.uint32)
        halves = np.zeros((len(weights), self.width + self.width % 2), np.uint16)
        if self.precision == "float16":
            with np.errstate(over="ignore"):
                halves[:, : self.width] = weights.astype(np.float16).view(np.uint16)
        else:
            bits = weights.view(np.uint32).astype(np.uint64)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            halves[:, : self.width] = np.where(np.isnan(weights), (bits >> 16) | 0x40, rounded).astype(np.uint16)
        return halves.view(np.uint32)

    def describe(self) -> dict[str, Any]:
        """The form as plain data, for files and comparisons."""
        return {
            "width": self.width,
            "dtype": self.dtype.name,
            "slots": list(self.slots),
            "precision": self.precision,
            "has_id": self.has_id,
        }

    @classmethod
    def read(cls, described: dict[str, Any]) -> RecordForm:
        """The inverse of `describe`."""
        return cls(
            int(described["width"]),
            np.dtype(described["dtype"]),
            tuple(described["slots"]),
            described["precision"],
            bool(described["has_id"]),
        )
