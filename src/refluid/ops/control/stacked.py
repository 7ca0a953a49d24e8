"""Arrays of tensors in compiled loops: a slot for each possible iteration, with room for the largest tensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.nested import item_room, visible_offsets, with_room, without_padding


class MisfitError(ValueError):
    """Tensors of one array are too different to share slots."""


@partial(jax.tree_util.register_dataclass, data_fields=["values", "count"], meta_fields=[])
@dataclass(frozen=True)
class Stacked:
    """An array of ``count`` tensors: ``values`` is like one of them, with a leading dim added to each part."""

    values: Any
    count: Any

    @property
    def dtype(self):
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def slots(self) -> int:
        """The number of slots."""
        return jax.tree.leaves(self.values)[0].shape[0]

    @classmethod
    def of_list(cls, tensors: list[Any], like: Any, slots: int) -> Stacked:
        """Tensors in ``slots`` slots, each like ``like``."""
        fitting = [fit(each, like) for each in tensors]
        fitting += [jax.tree.map(jnp.zeros_like, fitting[0])] * (slots - len(tensors))
        return cls(jax.tree.map(lambda *parts: jnp.stack(parts), *fitting), jnp.asarray(len(tensors), jnp.int64))

    def at(self, place: Any) -> Any:
        """The tensor at a position; the caller checks that there is one."""
        return jax.tree.map(lambda part: lax.dynamic_index_in_dim(part, place, 0, keepdims=False), self.values)

    def with_tensor(self, tensor: Any, place: Any) -> Stacked:
        """The array with a tensor at a position."""
        fitting = fit(tensor, self.at(0))
        values = jax.tree.map(
            lambda part, new: lax.dynamic_update_index_in_dim(part, new, place, 0), self.values, fitting
        )
        return Stacked(values, jnp.maximum(self.count, jnp.asarray(place + 1, self.count.dtype)))

    def to_list(self) -> list[Any]:
        """The tensors as a list; the count must be known."""
        return [without_padding(self.at(place)) for place in range(int(self.count))]


class Record:
    """The common shape of the tensors of an array, as far as it is known; see `Outline`."""

    def __init__(self, like: Any):
        self.like = like


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["record"])
@dataclass(frozen=True)
class Outline:
    """Represents an array while its loop is traced; every tensor written widens the record."""

    record: Record

    def at(self, place: Any) -> Any:
        return jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), self.record.like)

    def with_tensor(self, tensor: Any, place: Any) -> Outline:
        self.record.like = joined_shape(self.record.like, tensor)
        return self


def joined_shape(a: Any, b: Any) -> Any:
    """A shape that both tensors fit into: the larger capacity for rows and sequences."""
    if a is None:
        return _described(b)
    if plain(a).dtype != plain(b).dtype or plain(a).shape[1:] != plain(b).shape[1:]:
        raise MisfitError(f"{plain(a).dtype}{list(a.shape)} and {plain(b).dtype}{list(b.shape)}")
    outer, inner = visible_offsets(a), visible_offsets(b)
    if len(outer) != len(inner):
        raise MisfitError(f"tensors of {len(outer)} and of {len(inner)} LoD levels")
    counted = any(isinstance(x, Ragged) and x.hidden for x in (a, b)) or item_room(a) != item_room(b)
    if not counted and not outer:
        return _described(a)
    rows = jax.ShapeDtypeStruct((max(a.shape[0], b.shape[0]), *a.shape[1:]), a.dtype)
    known = (jax.ShapeDtypeStruct((2,), jnp.int32),) if counted else ()
    levels = (
        jax.ShapeDtypeStruct((max(m.shape[0], n.shape[0]),), jnp.int32) for m, n in zip(outer, inner, strict=True)
    )
    longest = max(x.longest if visible_offsets(x) else x.shape[0] for x in (a, b))
    return Ragged(rows, (*known, *levels), longest, len(known))


def _described(x: Any) -> Any:
    return jax.tree.map(lambda part: jax.ShapeDtypeStruct(part.shape, part.dtype), x)


def fit(x: Any, like: Any) -> Any:
    """``x`` padded to the capacity of ``like``."""
    if not isinstance(like, Ragged):
        if x.shape != like.shape or isinstance(x, Ragged):
            raise MisfitError(f"a tensor of shape {list(x.shape)} where there is one of {list(like.shape)}")
        return x
    rows = _extended(plain(x), like.shape[0], 0)
    offsets = [
        _extended(jnp.asarray(level, jnp.int32), wanted.shape[0], level[-1])
        for level, wanted in zip(visible_offsets(x), like.offsets[like.hidden :], strict=True)
    ]
    if like.hidden:
        count = x.offsets[x.hidden - 1][-1] if isinstance(x, Ragged) and x.hidden else item_room(x)
        offsets.insert(0, with_room(rows, count).offsets[0])
    return Ragged(rows, tuple(offsets), like.longest, like.hidden)


def _extended(x: Any, size: int, fill: Any) -> Any:
    missing = size - x.shape[0]
    if missing < 0:
        raise MisfitError(f"{x.shape[0]} rows where there is room for {size}")
    return jnp.concatenate([x, jnp.full((missing, *x.shape[1:]), fill, x.dtype)]) if missing else x
