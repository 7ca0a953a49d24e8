"""Values of all replicas, outside of the pieces that compute them.

Arrays are joined: the rows of the replicas follow each other, as feeds and fetches have them. So are the parts of
sequences and of selected rows. Each process has the rows of its own replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from refluid.backend import local_rows
from refluid.lowering.buckets import extended
from refluid.lowering.pieces import Options
from refluid.meshes import Replicas
from refluid.ops.core.values import Ragged, SelectedRows


@partial(jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=[])
@dataclass(frozen=True)
class PerReplica:
    """Values that have no rows to put one after the other, such as numbers: stacked along a new first dim."""

    value: Any


@dataclass(frozen=True)
class Copies:
    """A fetched variable of the scope: what each replica of this process has of it."""

    values: list[Any]


def parts_of(value: Any, target: Replicas) -> list[Any]:
    """What the replicas of this process have of a joined value, as NumPy arrays."""
    count = target.local
    if isinstance(value, PerReplica):
        stacked = jax.tree.map(local_rows, value.value)
    else:
        stacked = jax.tree.map(lambda x: _stacked(local_rows(x), count), value)
    return [jax.tree.map(lambda x: x[replica], stacked) for replica in range(count)]  # noqa: B023 - called at once


def copies_of(value: Any, target: Replicas) -> list[Any]:
    """What the replicas of this process have of a replicated value, as NumPy arrays."""
    leaves, structure = jax.tree.flatten(value)
    copies = [_copies(leaf, target.local) for leaf in leaves]
    return [jax.tree.unflatten(structure, own) for own in zip(*copies, strict=True)]


def _copies(leaf: Any, count: int) -> list[np.ndarray]:
    if isinstance(leaf, jax.Array) and leaf.is_fully_replicated and len(leaf.addressable_shards) == count:
        return [np.asarray(shard.data) for shard in leaf.addressable_shards]
    return [np.asarray(leaf)] * count


def _stacked(array: np.ndarray, count: int) -> np.ndarray:
    return array.reshape(count, array.shape[0] // count, *array.shape[1:])


def fetched(names: Sequence[str], values: Sequence[Any], options: Options) -> list[Any]:
    """Fetched values: joined ones, and the copies that replicas have of state."""
    target = options.target
    assert isinstance(target, Replicas)
    if target.local < target.replicas:
        values = [
            value if name in options.state else jax.tree.map(local_rows, value)
            for name, value in zip(names, values, strict=True)
        ]
    return [
        Copies(copies_of(value, target)) if name in options.state else value
        for name, value in zip(names, values, strict=True)
    ]


def join(parts: Sequence[Any], target: Replicas) -> Any:
    """The inverse of `parts_of`; where replicas have different numbers of rows, all get as many, some of them padding.

    Raises ValueError if the values differ in more than the number of rows.
    """
    if not all(isinstance(part, Ragged | SelectedRows) or getattr(part, "ndim", 0) for part in parts):
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *parts)
        return PerReplica(target.feed([stacked])[0])
    if not is_even(parts):
        parts = padded(parts)
    return target.feed([jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)])[0]


def is_even(parts: Sequence[Any]) -> bool:
    """Whether values have the same form, so that they can be the rows of one array."""
    leaves = [jax.tree.leaves(part) for part in parts]
    return all([leaf.shape for leaf in each] == [leaf.shape for leaf in leaves[0]] for each in leaves)


def size_of(part: Any) -> int:
    """How many rows an array has, or how many outermost sequences."""
    return part.offsets[0].shape[0] - 1 if isinstance(part, Ragged) else len(part)


def padded(parts: Sequence[Any], size: int = 0) -> list[Ragged]:
    """Values with as many rows, or sequences, each, and the number of those that are real; not less than ``size``."""
    size = max(size, *map(size_of, parts))
    return [_padded_to(size, part) for part in parts]


def _padded_to(size: int, part: Any) -> Ragged:
    real = np.array([0, size_of(part)], np.int32)
    if isinstance(part, Ragged):
        outermost = extended(np.asarray(part.offsets[0]), size + 1)
        return Ragged(part.data, (real, outermost, *part.offsets[1:]), part.longest, part.hidden + 1)
    return Ragged(extended(np.asarray(part), size, 0), (real,), size, 1)
