"""Picking whole sequences out of packed ones, with all their levels.

An *item* of a tensor is a sequence of its outermost visible level, or a row if it has no levels.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from refluid.ops.core.values import Ragged, last_at_most, plain
from refluid.ops.sequence.packing import offsets_of, take_rows


def is_known(*integers: Any) -> bool:
    """Whether the integers are concrete rather than traced."""
    return not any(isinstance(each, Tracer) for each in integers)


def visible_offsets(x: Any) -> tuple[Any, ...]:
    """The offsets of the levels that users see; none for plain tensors."""
    return x.offsets[x.hidden :] if isinstance(x, Ragged) else ()


def item_room(x: Any) -> int:
    """How many items ``x`` has, padding included."""
    offsets = visible_offsets(x)
    return offsets[0].shape[0] - 1 if offsets else x.shape[0]


def level_view(x: Ragged, level: int) -> Ragged:
    """The sequences of one level, with the numbers of their items instead of rows."""
    last = x.hidden + level
    if last == len(x.offsets) - 1:
        return x
    count = x.offsets[last + 1].shape[0] - 1
    return Ragged(jnp.arange(count, dtype=jnp.int32), x.offsets[: last + 1], count, x.hidden)


def with_room(rows: Any, count: Any) -> Ragged:
    """``rows`` of which the first ``count`` are real and the others padding."""
    known = jnp.stack([jnp.zeros((), jnp.int32), jnp.asarray(count, jnp.int32)])
    return Ragged(rows, (known,), rows.shape[0], hidden=1)


def first_items(x: Any, count: Any) -> Any:
    """The first ``count`` items; the others become padding, or are removed if the counts are known."""
    offsets = visible_offsets(x)
    if is_known(count, *offsets):
        return _slice(x, offsets, 0, int(count))
    kept, end = [], count
    for level in offsets:
        kept.append(jnp.minimum(level, level[end]))
        end = kept[-1][-1]
    rows = with_room(plain(x), count)
    return Ragged(rows.data, (*rows.offsets, *kept), x.longest, hidden=1) if kept else rows


def item_range(x: Any, start: int, end: int) -> Any:
    """Items ``start`` to ``end`` of a tensor whose offsets are known, without padding."""
    return _slice(x, visible_offsets(x), start, end)


def _slice(x: Any, offsets: tuple[Any, ...], start: int, end: int) -> Any:
    kept = []
    for level in offsets:
        level = np.asarray(level)[start : end + 1]
        kept.append(level - level[0])
        start, end = int(level[0]), int(level[-1])
    rows = plain(x)[start:end]
    return Ragged(rows, tuple(kept), x.longest) if kept else rows


def without_padding(x: Any) -> Any:
    """``x`` without padding; its offsets must be known. Rows that are not sequences become a plain array."""
    if not isinstance(x, Ragged):
        return x
    return _slice(x, visible_offsets(x), 0, item_count(x))


def item_count(x: Any) -> int:
    """How many real items ``x`` has; its offsets must be known."""
    if not isinstance(x, Ragged):
        return x.shape[0]
    return int(x.offsets[x.hidden - 1][-1]) if x.hidden else item_room(x)


def pick_items(x: Any, places: Any, real: Any, rows: int | None = None) -> Any:
    """The items of ``x`` at ``places``, in that order; padding where ``real`` is false.

    Args:
      real: true for the leading places, false for the others.
      rows: a bound on the number of rows; by default as many as x has.
    """
    offsets = visible_offsets(x)
    if not offsets:
        return take_rows(plain(x), places, real)
    if places.shape[0] == 0:
        return Ragged(plain(x)[:0], tuple(level[:1] for level in offsets), x.longest)
    picked = []
    for number, level in enumerate(offsets):
        lengths = jnp.where(real, (level[1:] - level[:-1])[places], 0)
        picked.append(offsets_of(lengths))
        inner = offsets[number + 1].shape[0] - 1 if number + 1 < len(offsets) else (rows or x.shape[0])
        index = jnp.arange(inner, dtype=jnp.int32)
        owner = jnp.clip(last_at_most(picked[-1], index), 0, max(places.shape[0] - 1, 0))
        real, places = index < picked[-1][-1], level[places[owner]] + index - picked[-1][owner]
        places = jnp.where(real, places, 0)
    return Ragged(take_rows(plain(x), places, real), tuple(picked), x.longest)


def joined(tensors: list[Any]) -> Any:
    """The items of several tensors without padding, one after the other."""
    data = jnp.concatenate([plain(each) for each in tensors])
    by_level = zip(*(visible_offsets(each) for each in tensors), strict=True)
    offsets = tuple(_joined_offsets([np.asarray(level) for level in levels]) for levels in by_level)
    return Ragged(data, offsets, max(each.longest for each in tensors)) if offsets else data


def _joined_offsets(levels: list[np.ndarray]) -> np.ndarray:
    lengths = np.concatenate([np.diff(level) for level in levels])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
