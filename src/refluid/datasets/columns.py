"""Columns of Arrow as numbers: those of all rows one after the other, and where each row begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refluid.datasets.kernels import NEGLIGIBLE
from refluid.datasets.schema import Slot
from refluid.errors import ColumnError


@dataclass(frozen=True)
class Numbers:
    """The values of a slot in some rows.

    Attributes:
      values: int64 or float32.
      offsets: row ``i`` has the values from ``offsets[i]`` to ``offsets[i + 1]``.
    """

    values: np.ndarray
    offsets: np.ndarray

    def without_zeros(self) -> Numbers:
        """The same without zeros."""
        kept = self.values != 0 if self.values.dtype == np.int64 else np.abs(self.values) >= NEGLIGIBLE
        before = np.concatenate([[0], np.cumsum(kept)])
        return Numbers(self.values[kept], before[self.offsets])


def numbers_of(column: Any, slot: Slot, file: str, first_row: int) -> Numbers:
    """The numbers of a column, which must be of a type that fits the slot.

    Raises:
      ColumnError: it does not; or a row has a null, or the wrong number of values.
    """
    return _Reader(slot, column.type, file, first_row).read(column)


@dataclass(frozen=True)
class _Reader:
    """Reads one column."""

    slot: Slot
    type: Any
    file: str
    first_row: int

    def read(self, column: Any) -> Numbers:
        offsets, depth = np.arange(len(column) + 1), 0
        while _has_lists(column.type):
            depth += 1
            if depth > 1 and not self.slot.dense:
                raise self._unexpected()
            self._check_nulls(column, offsets)
            column, offsets = _flattened(column, offsets)
        values = self._values(column)
        self._check_nulls(column, offsets)
        if self.slot.dense:
            self._check_widths(offsets)
        return Numbers(self._converted(values), offsets)

    def _values(self, column: Any) -> np.ndarray:
        types = _arrow().types
        is_whole = types.is_integer(column.type) or types.is_boolean(column.type)
        if not is_whole and not (types.is_floating(column.type) and self.slot.dtype == np.float32):
            raise self._unexpected()
        return column.to_numpy(zero_copy_only=False)

    def _converted(self, values: np.ndarray) -> np.ndarray:
        if values.dtype == np.uint64 and self.slot.dtype == np.int64:
            return np.ascontiguousarray(values.view(np.int64))  # ids of 64 bits keep their bits, as in Fluid
        return np.ascontiguousarray(values, self.slot.dtype)

    def _check_nulls(self, column: Any, offsets: np.ndarray) -> None:
        if column.null_count:
            place = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]
            row = int(np.searchsorted(offsets, place, side="right")) - 1
            raise self._error(f"row {self.first_row + row} has a null; expected {self._expected()}")

    def _check_widths(self, offsets: np.ndarray) -> None:
        counts = np.diff(offsets)
        wrong = np.flatnonzero((counts == 0) | (counts % self.slot.width != 0))
        if len(wrong):
            row, count = self.first_row + int(wrong[0]), int(counts[wrong[0]])
            raise self._error(f"row {row} has {count} values; expected {self._expected()}")

    def _unexpected(self) -> ColumnError:
        return self._error(f"the column is {self.type}; expected {self._expected()}")

    def _expected(self) -> str:
        kind = self.slot.dtype.name
        if not self.slot.dense:
            return f"list<{kind}>"
        return kind if self.slot.width == 1 else f"fixed_size_list<{kind}>[{self.slot.width}]"

    def _error(self, problem: str) -> ColumnError:
        return ColumnError(self.file, self.slot.name, problem)


def _flattened(column: Any, offsets: np.ndarray) -> tuple[Any, np.ndarray]:
    """The values of a column of lists, and where those of each row begin."""
    import pyarrow.compute  # pyright: ignore[reportMissingImports]

    compute: Any = pyarrow.compute
    lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    return column.flatten(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[offsets]


def _has_lists(kind: Any) -> bool:
    types = _arrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _arrow() -> Any:
    import pyarrow  # pyright: ignore[reportMissingImports]

    return pyarrow
