"""Values outside programs: what scopes hold, and what is fed and fetched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from refluid import backend
from refluid.backend import Device
from refluid.ir.vartype import VarType, as_dtype
from refluid.ops.core.growing import NO_ROW
from refluid.ops.core.values import Ragged, SelectedRows
from refluid.places import Place


def to_device(value: Any, device: Device | None = None) -> jax.Array:
    """Copies ``value`` to a JAX array of the same width, 64 bits included; it never aliases a NumPy array."""
    backend.prepare()
    with jax.enable_x64(True):
        return jax.device_put(np.array(value) if not isinstance(value, jax.Array) else value, device)


def copied(value: Any) -> jax.Array:
    """A copy of a value of a scope, which lives on when the next step reuses the value's memory."""
    with jax.enable_x64(True):
        return jnp.copy(to_device(value))


def own(array: np.ndarray) -> jax.Array:
    """Converts a NumPy array that has no other references; on a CPU without a copy if its alignment allows."""
    backend.prepare()
    with jax.enable_x64(True):
        return jax.device_put(array)


def on_same_device(value: Any, before: Any) -> Any:
    """``value`` on the device of the array that it replaces, if that is on one."""
    return jax.device_put(value, before.sharding) if isinstance(before, jax.Array) else value


class RemoteArray(ABC):
    """The value of a tensor that other processes hold: shape and dtype are known here, and values are read on use.

    Every use reads anew. Indexing along the first axis reads only these rows. Where rows have ids, integers are ids,
    negative ones too.

    Attributes:
      any_ids: whether rows have any int64 numbers, so that the shape is a hint and there is no array of all.
    """

    any_ids = False

    def __init__(self, name: str, shape: Sequence[int], dtype: np.dtype):
        self.name, self.shape, self.dtype = name, tuple(shape), dtype

    @property
    def by_id(self) -> bool:
        """Whether rows are chosen by their ids, any int64 but 2^63 - 1, and not by their places."""
        return self.any_ids

    @abstractmethod
    def read(self) -> np.ndarray:
        """The whole array, in memory that nobody else holds."""

    @abstractmethod
    def read_rows(self, rows: np.ndarray | range) -> np.ndarray:
        """The rows of these numbers, which are valid."""

    @abstractmethod
    def where(self) -> str:
        """Which processes hold the array, in words."""

    @abstractmethod
    def check_writable(self, written: str) -> None:
        """Raises, and says how to change the value, unless it may be replaced by one of this process.

        Args:
          written: what would be lost otherwise, in words.
        """

    def write_rows(self, stream: BinaryIO) -> None:
        """Writes all rows in Fluid's form of selected rows, if they have any numbers."""
        raise NotImplementedError(self.name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.read().astype(self.dtype if dtype is None else dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        first, *rest = index if isinstance(index, tuple) and index else (index,)
        if first is None or first is Ellipsis:
            return self.read()[index]
        if isinstance(first, slice):
            rows, place = range(*first.indices(len(self))), slice(None)
        else:
            numbers = np.asarray(first)
            rows = self._row_numbers(numbers)
            place = np.arange(rows.size).reshape(numbers.shape) if numbers.dtype != bool else slice(None)
        return self.read_rows(rows)[(place, *rest)]

    def _row_numbers(self, given: np.ndarray) -> np.ndarray:
        height = len(self)
        if given.dtype == bool:
            if given.shape != (height,):
                raise IndexError(f"{self.name}: a mask of shape {list(given.shape)} does not fit its {height} rows")
            return np.flatnonzero(given)
        if given.size and given.dtype.kind not in "iu":
            raise IndexError(f"{self.name}: rows are chosen by integers, slices or a mask, not by {given.dtype}")
        if given.dtype == np.uint64 and (given > NO_ROW).any():
            raise IndexError(f"{self.name}: there is no row {given.max()}, rows have numbers of int64")
        rows = given.reshape(-1).astype(np.int64)
        if self.by_id:
            if (rows == NO_ROW).any():
                raise IndexError(f"{self.name}: {NO_ROW} stands for padding and is the id of no row")
            return rows
        wrong = rows[(rows < -height) | (rows >= height)]
        if wrong.size:
            raise IndexError(f"{self.name}: there is no row {wrong[0]}, it has {height} rows")
        return np.where(rows < 0, rows + height, rows)

    def __repr__(self) -> str:
        return f"on {self.where()}; np.array(tensor) and tensor[rows] read it"


class LoDTensor:
    """An array with sequence offsets: level i splits the sequences of level i - 1, the last level splits rows.

    ``value`` is a JAX or NumPy array, a `RemoteArray`, or None before anything was set. A step that writes sequences
    leaves a `Ragged` there, which becomes rows and offsets when somebody looks at the tensor.
    """

    __slots__ = ("_lod", "value")

    def __init__(self, value: Any = None, lod: Sequence[Sequence[int] | np.ndarray] = ()):
        self.value = value
        self._lod: tuple[np.ndarray, ...] = ()
        if lod:
            self.set_lod(lod)

    @classmethod
    def of(cls, value: Any, lod: tuple[np.ndarray, ...]) -> LoDTensor:
        """A tensor with offsets that are known to be valid, as integer arrays."""
        tensor = cls(value)
        tensor._lod = lod
        return tensor

    @classmethod
    def of_sequences(cls, value: Ragged) -> LoDTensor:
        """Computed sequences, without their padding."""
        levels: list[np.ndarray] = []
        count: int | None = None
        for offsets in value.offsets:
            level = np.asarray(offsets)
            level = level if count is None else level[: count + 1]
            levels.append(level)
            count = int(level[-1])
        # Not by set_lod: an empty result, as when a mask picks no sequence, has a LoD that users must not feed.
        shown = max(count or 0, value.least)
        return cls.of(np.asarray(value.data)[:shown].copy(), tuple(levels[value.hidden :]))

    def settled(self) -> LoDTensor:
        """The tensor itself, after splitting a `Ragged` into rows and offsets."""
        if isinstance(self.value, Ragged):
            found = LoDTensor.of_sequences(self.value)
            self.value, self._lod = found.value, found._lod
        return self

    def set(self, array: Any, place: Place | None = None) -> None:
        """Copies ``array`` into the tensor; its sequence offsets stay as they are."""
        self.settled().check_writable("a value that is set")
        self.value = to_device(array, None if place is None else place.device())

    def check_writable(self, written: str) -> None:
        """Raises if other processes hold the value: what is written here would not reach them."""
        if isinstance(self.value, RemoteArray):
            self.value.check_writable(written)

    def shape(self) -> list[int]:
        return [] if self.value is None else list(self.settled().value.shape)

    def _dtype(self) -> VarType:
        return as_dtype(np.float32 if self.value is None else self.value.dtype)

    def _is_initialized(self) -> bool:
        return self.value is not None

    def _get_dims(self) -> list[int]:
        return self.shape()

    def _set_dims(self, dims: Sequence[int]) -> None:
        """Reshapes in place, or allocates zeros."""
        self.settled().check_writable("another shape")
        if not isinstance(self.value, RemoteArray | None) and self.value.size == int(np.prod(dims)):
            self.value = self.value.reshape(tuple(dims))
        else:
            self.value = to_device(np.zeros(tuple(dims), np.float32 if self.value is None else self.value.dtype))

    def _alloc_float(self, place: Place | None = None) -> None:
        self.set(np.zeros(self.shape(), np.float32), place)

    def lod(self) -> list[list[int]]:
        """Returns the offsets of each level."""
        return [level.tolist() for level in self.settled()._lod]

    def set_lod(self, lod: Sequence[Sequence[int] | np.ndarray]) -> None:
        """Sets the offsets, which must match each other and the number of rows."""
        levels = tuple(np.array(level if isinstance(level, np.ndarray) else list(level), np.int64) for level in lod)
        problem = _lod_problem(levels, None if self.value is None else self.settled().value.shape)
        if problem:
            raise ValueError(f"the LoD {[level.tolist() for level in levels]} is not valid: {problem}")
        self._lod = levels

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Returns the sequence lengths of each level."""
        return [np.diff(level).tolist() for level in self.settled()._lod]

    def set_recursive_sequence_lengths(self, recursive_sequence_lengths: Sequence[Sequence[int]]) -> None:
        """Sets the offsets from sequence lengths."""
        self.set_lod([np.concatenate(([0], np.cumsum(level))) for level in recursive_sequence_lengths])

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Whether the offsets match each other and the number of rows."""
        return _lod_problem(self.settled()._lod, None if self.value is None else self.value.shape) is None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.value is None:
            raise ValueError("the tensor holds no value yet")
        self.settled()
        if copy is False:
            return np.asarray(self.value, dtype=dtype)
        return np.array(self.value, dtype=dtype)

    def __len__(self) -> int:
        return 0 if self.value is None else len(self.settled().value)

    def __getitem__(self, index: Any) -> np.ndarray:
        self.settled()
        return self.value[index] if isinstance(self.value, RemoteArray) else np.asarray(self.value)[index]

    def __str__(self) -> str:
        lod = f"  lod: {self.lod()}\n" if self.settled()._lod else ""
        is_here = self.value is not None and not isinstance(self.value, RemoteArray)
        return f"{lod}  dim: {self.shape()}\n  data: {np.asarray(self.value) if is_here else self.value}"

    __repr__ = __str__


def _lod_problem(levels: tuple[np.ndarray, ...], shape: Sequence[int] | None) -> str | None:
    for number, level in enumerate(levels):
        if len(level) < 2 or level[0] != 0:
            return f"level {number} must start with 0 and hold at least one sequence"
        if (level[1:] < level[:-1]).any():
            return f"the offsets of level {number} decrease"
    for number, (level, below) in enumerate(pairwise(levels)):
        if level[-1] != len(below) - 1:
            return f"level {number} ends at {level[-1]}, but level {number + 1} has {len(below) - 1} sequences"
    if levels and shape and levels[-1][-1] != shape[0]:
        return f"the last offset is {levels[-1][-1]}, but there are {shape[0]} rows"
    return None


class SelectedRowsTensor:
    """Some rows of a tall tensor, as scopes hold them: row numbers, height, and a tensor of their values."""

    def __init__(self, rows: Iterable[int] = (), height: int = 0):
        self._height = height
        self.set_rows(rows)
        self._tensor = LoDTensor()

    @classmethod
    def of(cls, value: SelectedRows) -> SelectedRowsTensor:
        """Converts a computed value."""
        tensor = cls()
        tensor.hold(value)
        return tensor

    def hold(self, value: SelectedRows) -> None:
        """Takes over a computed value, dropping entries that stand for no row."""
        rows = np.asarray(value.rows)
        used = rows < value.height
        self.set_rows(rows[used])
        self.set_height(value.height)
        self._tensor.value = value.values if used.all() else np.asarray(value.values)[used]

    def rows(self) -> list[int]:
        return self._rows.tolist()

    def set_rows(self, rows: Iterable[int]) -> None:
        self._rows = np.array(rows if isinstance(rows, np.ndarray) else list(rows), np.int64)

    def height(self) -> int:
        return self._height

    def set_height(self, height: int) -> None:
        self._height = int(height)

    def get_tensor(self) -> LoDTensor:
        return self._tensor

    def sync_index(self) -> None:
        """Does nothing: rows are looked up directly, without an index."""


class LoDTensorArray(list):
    """A list of LoDTensors."""

    def append(self, tensor: Any) -> None:
        super().append(tensor if isinstance(tensor, LoDTensor) else LoDTensor(to_device(tensor)))
