"""What sequence ops have in common: lengths to offsets, and rows picked out of packed sequences."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from refluid.ops.values import Ragged


def require_sequences(value: Any, slot: str) -> Ragged:
    """``value`` as sequences; raises where a plain tensor came in."""
    if not isinstance(value, Ragged) or not value.levels:
        raise ValueError(
            f"{slot} must hold sequences: feed it as a LoDTensor, to a variable with lod_level of at least 1"
        )
    return value


def offsets_of(lengths: Any) -> Any:
    """Where sequences of these lengths begin, and where the last one ends."""
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(lengths, dtype=jnp.int32)])


def column(mask: Any, like: Any) -> Any:
    """A mask of rows, shaped to be broadcast over the elements of a row."""
    return mask.reshape(mask.shape[0], *(1,) * (like.ndim - 1))


def take_rows(data: Any, places: Any, real: Any) -> Any:
    """Rows of ``data``; copies of the first one, which pass no gradient, where ``real`` is false."""
    taken = data[jnp.where(real, places, 0)]
    return jnp.where(column(real, data), taken, lax.stop_gradient(data[:1]))


def pick_pieces(data: Any, starts: Any, lengths: Any, bound: int) -> tuple[Any, Any]:
    """Pieces of ``data`` packed one after the other into ``bound`` rows, and their offsets."""
    offsets = offsets_of(lengths)
    rows = jnp.arange(bound, dtype=jnp.int32)
    piece = jnp.clip(jnp.searchsorted(offsets, rows, side="right") - 1, 0, max(lengths.shape[0] - 1, 0))
    return take_rows(data, starts[piece] + rows - offsets[piece], rows < offsets[-1]), offsets


def inner_level(x: Ragged, data: Any, offsets: Any, longest: int) -> Ragged:
    """``data`` cut by ``offsets`` instead of x's last level, below x's other levels."""
    return Ragged(data, (*x.offsets[:-1], offsets), longest, x.hidden)


def per_sequence(x: Ragged, values: Any) -> Any:
    """One row for each sequence of x's last level: sequences themselves where x has more levels."""
    if len(x.offsets) == 1:
        return values
    return Ragged(values, x.offsets[:-1], x.sequences, x.hidden)
