"""What flows between ops besides plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


@partial(jax.tree_util.register_dataclass, data_fields=["rows", "values"], meta_fields=["height"])
@dataclass(frozen=True)
class SelectedRows:
    """A few rows of a tall matrix: the gradient of an is_sparse embedding.

    ``values[i]`` belongs to row ``rows[i]`` of a tensor with ``height`` rows. Rows may repeat; repeated rows add up.
    A row number equal to ``height`` stands for "no row": it is dropped wherever rows are applied.
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
        """The full tensor, zeros where there is no row."""
        return jnp.zeros(self.shape, self.dtype).at[self.rows].add(self.values, mode="drop")

    def merged(self) -> SelectedRows:
        """Each row once, its values added up; unused places hold row ``height`` and zeros."""
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
    """``rows`` in order, and where each was; rows that repeat keep their order."""
    count = rows.shape[0]
    if rows.dtype != jnp.int64 or max(height, count) >= 1 << 31:
        order = jnp.argsort(rows, stable=True)
        return rows[order], order
    # One int64 holds row and position. Sorting one array is five times faster on CPU than argsort, which sorts pairs:
    # 100000 rows take 4 ms instead of 25.
    packed = jnp.sort((rows << 32) | jnp.arange(count, dtype=jnp.int64))
    return packed >> 32, packed & 0xFFFFFFFF


def to_dense(value: Any) -> Any:
    """``value`` as a plain array."""
    return value.to_dense() if isinstance(value, SelectedRows) else value


def is_inexact(value: Any) -> bool:
    """Whether gradients can flow through ``value``."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.inexact)
