"""The values that ops take and return besides plain arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


@partial(jax.tree_util.register_dataclass, data_fields=["rows", "values"], meta_fields=["height"])
@dataclass(frozen=True)
class SelectedRows:
    """A few rows of a tall matrix: the gradient of an is_sparse embedding.

    ``values[i]`` belongs to row ``rows[i]`` of a tensor with ``height`` rows. Rows may repeat; repeated rows add up.
    A row number equal to ``height`` means "no row" and is dropped when rows are applied.
    """

    rows: Any
    values: Any
    height: int

    @property
    def dtype(self):
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.height, *self.values.shape[1:])

    def to_dense(self):
        """The full tensor, with zeros where there is no row."""
        return jnp.zeros(self.shape, self.dtype).at[self.rows].add(self.values, mode="drop")

    def merged(self) -> SelectedRows:
        """Each row once, with its values summed; unused places hold row ``height`` and zeros."""
        rows, order = _sorted_rows(self.rows, self.height)
        first = jnp.concatenate([jnp.ones((1,), bool), rows[1:] != rows[:-1]]) if rows.size else rows.astype(bool)
        place = jnp.cumsum(first) - 1
        values = jnp.zeros_like(self.values).at[place].add(self.values[order], indices_are_sorted=True)
        merged = jnp.full_like(rows, self.height).at[place].set(rows, indices_are_sorted=True)
        return SelectedRows(merged, values, self.height)

    def map_values(self, function) -> SelectedRows:
        """The same rows with ``function`` applied to their values."""
        return SelectedRows(self.rows, function(self.values), self.height)


def _sorted_rows(rows: Any, height: int) -> tuple[Any, Any]:
    """``rows`` sorted, and the original position of each; the sort is stable."""
    count = rows.shape[0]
    if rows.dtype != jnp.int64 or max(height, count) >= 1 << 31:
        order = jnp.argsort(rows, stable=True)
        return rows[order], order
    # One int64 holds row and position. Sorting one array is five times faster on CPU than argsort, which sorts pairs:
    # 100000 rows take 4 ms instead of 25.
    packed = jnp.sort((rows << 32) | jnp.arange(count, dtype=jnp.int64))
    return packed >> 32, packed & 0xFFFFFFFF


@partial(jax.tree_util.register_dataclass, data_fields=["data", "offsets"], meta_fields=["longest", "hidden", "least"])
@dataclass(frozen=True)
class Ragged:
    """Packed sequences: rows and, for each LoD level, the offsets of its sequences.

    ``offsets[-1]`` splits the rows of ``data``, ``offsets[i]`` the sequences of level i + 1; each starts with 0. Both
    may be padded, so that other lengths need no recompilation: ``data`` may have rows after the last offset (copies of
    a real row), and an inner level may repeat its last offset (empty sequences after the last real one). ``longest``
    bounds the length of the last level's sequences; it is a Python integer, so it can bound loops. Fluid does not see
    the first ``hidden`` levels: they only count how much of the level below is real. Users are shown at least ``least``
    rows, even if all sequences are empty.
    """

    data: Any
    offsets: tuple[Any, ...]
    longest: int
    hidden: int = 0
    least: int = 0

    @property
    def dtype(self):
        return self.data.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def levels(self) -> int:
        """How many LoD levels users see."""
        return len(self.offsets) - self.hidden

    @property
    def sequences(self) -> int:
        """How many sequences the last level has, padding included."""
        return self.offsets[-1].shape[0] - 1

    @property
    def lengths(self) -> Any:
        """The length of each sequence of the last level."""
        return self.offsets[-1][1:] - self.offsets[-1][:-1]

    @property
    def rows(self) -> Any:
        """How many rows are real."""
        return self.offsets[-1][-1]

    def real(self) -> Any:
        """True for real rows, False for padding."""
        return jnp.arange(self.data.shape[0], dtype=self.offsets[-1].dtype) < self.rows

    def owners(self) -> Any:
        """For each row, the sequence of the last level it belongs to; padding rows get the number of sequences."""
        places = jnp.arange(self.data.shape[0], dtype=self.offsets[-1].dtype)
        owner = last_at_most(self.offsets[-1], places)
        return jnp.where(places < self.rows, owner, self.sequences)

    def positions(self) -> Any:
        """For each row, its place within its sequence."""
        places = jnp.arange(self.data.shape[0], dtype=self.offsets[-1].dtype)
        starts = jnp.concatenate([self.offsets[-1][:-1], self.offsets[-1][-1:]])
        return places - starts[self.owners()]

    def with_data(self, data: Any) -> Ragged:
        """The same sequences with other rows."""
        return replace(self, data=data)

    def as_rows(self, data: Any) -> Ragged:
        """Other rows, the same number of them real, that are not sequences."""
        return replace(self, data=data, hidden=len(self.offsets))

    def masked(self, fill: Any = 0) -> Any:
        """The rows, with padding replaced by ``fill``."""
        real = self.real().reshape(-1, *(1,) * (self.data.ndim - 1))
        return jnp.where(real, self.data, jnp.asarray(fill, self.dtype))

    def to_padded(self, fill: Any = 0) -> Any:
        """[sequences, longest, ...]: each sequence in a row of its own, ``fill`` after its end."""
        places = self.offsets[-1][:-1, None] + jnp.arange(self.longest, dtype=self.offsets[-1].dtype)
        inside = jnp.arange(self.longest) < self.lengths[:, None]
        taken = self.data[jnp.where(inside, places, 0)]
        return jnp.where(
            inside.reshape(*inside.shape, *(1,) * (self.data.ndim - 1)), taken, jnp.asarray(fill, self.dtype)
        )

    def from_padded(self, padded: Any) -> Ragged:
        """The inverse of `to_padded`: rows of [sequences, longest, ...]; padding rows are copies of a real one."""
        owners = jnp.minimum(self.owners(), max(self.sequences - 1, 0))
        positions = jnp.clip(self.positions(), 0, max(self.longest - 1, 0))
        return self.with_data(padded[owners, positions])


def last_at_most(offsets: Any, places: Any) -> Any:
    """For each place, the index of the last offset that is at most that place."""
    # Comparing with a few offsets takes one pass; a binary search is a loop, slow to start and to compile. It is
    # unrolled because XLA merges equal computations of several ops, but not loops.
    method = "compare_all" if offsets.shape[0] <= 256 else "scan_unrolled"
    return jnp.searchsorted(offsets, places, side="right", method=method) - 1


def plain(value: Any) -> Any:
    """The rows of a Ragged; anything else as it is."""
    return value.data if isinstance(value, Ragged) else value


def to_dense(value: Any) -> Any:
    """``value`` as a plain array."""
    return value.to_dense() if isinstance(value, SelectedRows) else plain(value)


def is_inexact(value: Any) -> bool:
    """Whether gradients can flow through ``value``."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.inexact)


def as_ids(labels: Any) -> Any:
    """``labels`` as integers of any width.

    Scripts declare labels without a dtype, hence as float32, and feed int64. Real Fluid reads the fed dtype only; here
    shapes are inferred from the declaration, so rules must accept floats too.
    """
    return labels if jnp.issubdtype(labels.dtype, jnp.integer) else labels.astype(jnp.int64)
