"""Helpers of sequence ops: converting lengths to offsets, and picking rows out of packed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import jax.numpy as jnp
from jax import lax

from refluid.ops.core.values import Ragged, last_at_most, plain


def require_sequences(value: Any, slot: str) -> Ragged:
    """``value`` as sequences; raises if it is a plain tensor."""
    if not isinstance(value, Ragged) or not value.levels:
        raise ValueError(
            f"{slot} must hold sequences: feed it as a LoDTensor, to a variable with lod_level of at least 1"
        )
    return value


def require_single_level(value: Any, slot: str) -> Ragged:
    """``value`` as sequences of one level; raises if there are other levels above them.

    Real Fluid also rejects those, or mistakes the outer level's offsets for row numbers.
    """
    sequences = require_sequences(value, slot)
    if sequences.levels > 1:
        raise ValueError(f"{slot} may have one LoD level, but has {sequences.levels}")
    return sequences


def offsets_of(lengths: Any) -> Any:
    """Where sequences of these lengths begin, and where the last one ends."""
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(lengths, dtype=jnp.int32)])


def column(mask: Any, like: Any) -> Any:
    """A mask of rows, shaped to be broadcast over the elements of a row."""
    return mask.reshape(mask.shape[0], *(1,) * (like.ndim - 1))


def take_rows(data: Any, places: Any, real: Any) -> Any:
    """Rows of ``data``; where ``real`` is false, copies of the first row that pass no gradient."""
    taken = data[jnp.where(real, places, 0)]
    return jnp.where(column(real, data), taken, lax.stop_gradient(data[:1]))


def pick_pieces(data: Any, starts: Any, lengths: Any, bound: int) -> tuple[Any, Any]:
    """Pieces of ``data`` packed one after the other into ``bound`` rows, and their offsets."""
    offsets = offsets_of(lengths)
    rows = jnp.arange(bound, dtype=jnp.int32)
    piece = jnp.clip(last_at_most(offsets, rows), 0, max(lengths.shape[0] - 1, 0))
    return take_rows(data, starts[piece] + rows - offsets[piece], rows < offsets[-1]), offsets


def inner_level(x: Ragged, data: Any, offsets: Any, longest: int) -> Ragged:
    """``data`` split by ``offsets`` instead of x's last level, below x's other levels."""
    return Ragged(data, (*x.offsets[:-1], offsets), longest, x.hidden)


def outermost(x: Ragged) -> Ragged:
    """The rows split by the outermost level alone, as real Fluid does with CTC frames."""
    offsets = x.offsets[-1]
    for level in reversed(x.offsets[x.hidden : -1]):
        offsets = offsets[level]
    return Ragged(x.data, (*x.offsets[: x.hidden], offsets), x.longest if x.levels == 1 else x.shape[0], x.hidden)


def joined_rows(xs: Sequence[Any]) -> Ragged:
    """The rows of all values, concatenated; sequences if all values are."""
    levels = {x.levels if isinstance(x, Ragged) else 0 for x in xs}
    if len(levels) > 1 or levels == {0}:
        counts = [x.rows if isinstance(x, Ragged) else x.shape[0] for x in xs]
        rows, offsets = _packed([plain(x) for x in xs], counts)
        return Ragged(rows, (offsets[:: len(xs)],), rows.shape[0], hidden=1)
    (depth,) = levels
    # The level above gives the number of sequences in each level; inner levels may be padded.
    counts = [count_of(x, x.hidden) for x in xs]
    cut = []
    for level in range(depth):
        lengths, _ = _packed([jnp.diff(x.offsets[x.hidden + level]) for x in xs], counts)
        known = jnp.arange(lengths.shape[0]) < sum(counts)
        cut.append(offsets_of(jnp.where(known, lengths, 0)))
        counts = [x.offsets[x.hidden + level][-1] for x in xs]
    rows, _ = _packed([x.data for x in xs], counts)
    hidden = any(x.hidden for x in xs)
    if hidden:  # the outermost level may be padded as well
        total = jnp.asarray([0, sum(count_of(x, x.hidden) for x in xs)], jnp.int32)
        cut.insert(0, total)
    return Ragged(rows, tuple(cut), max(x.longest for x in xs), hidden=int(hidden))


def _packed(arrays: Sequence[Any], counts: Sequence[Any]) -> tuple[Any, Any]:
    """The first ``counts[i]`` rows of each array i, concatenated, and where each begins."""
    *firsts, bound = accumulate((array.shape[0] for array in arrays), initial=0)
    lengths = jnp.stack([jnp.asarray(count, jnp.int32) for count in counts])
    return pick_pieces(jnp.concatenate(arrays), jnp.asarray(firsts, jnp.int32), lengths, bound)


def per_sequence(x: Ragged, values: Any) -> Any:
    """One row for each sequence of x's last level; again sequences if x has more levels."""
    if len(x.offsets) == 1:
        return values
    return Ragged(values, x.offsets[:-1], x.sequences, x.hidden)


def rows_per_sequence(x: Any, values: Any) -> Any:
    """One row for each sequence of x's last level, which are not sequences even if x has more levels."""
    if not isinstance(x, Ragged) or len(x.offsets) == 1:
        return values
    return per_sequence(x, values).as_rows(values)


def count_of(x: Ragged, level: int = -1) -> Any:
    """How many sequences of a level are real."""
    place = level % len(x.offsets)
    return x.offsets[place - 1][-1] if place else x.offsets[0].shape[0] - 1
