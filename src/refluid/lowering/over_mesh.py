"""Compiled pieces over the devices of a mesh: one replica of the piece on each.

State is replicated. Feeds, and what pieces pass on or return, belong to a replica each; outside of the piece these
are one array, with the rows of the replicas one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from refluid.meshes import MeshTarget, Replicas, SharedDevice
from refluid.ops.core import replicas
from refluid.ops.core.replicas import AXIS
from refluid.ops.core.values import Ragged, SelectedRows

REPLICATED, SPLIT = PartitionSpec(), PartitionSpec(AXIS)


class _Piece(Protocol):
    """What is needed of a compiled piece."""

    others: tuple[str, ...]
    writes: tuple[str, ...]
    options: Any


def over_mesh(run: Callable[..., Any], target: MeshTarget, piece: _Piece, options: dict[str, str]) -> Any:
    """``run``, the function of a compiled piece, jitted for the replicas of a mesh."""
    state, fed = piece.options.state, piece.options.feeds
    passed_on = [name not in state and name not in fed for name in piece.others]
    kept = [name in state for name in piece.writes]

    def replica(mutable: Any, others: Any, key_data: Any) -> Any:
        with replicas.traced_for(target.replicas):
            others = [_own(value) if is_joined else value for value, is_joined in zip(others, passed_on, strict=True)]
            written, flags = run(mutable, others, key_data)
        return [value if is_kept else _joined(value) for value, is_kept in zip(written, kept, strict=True)], flags

    inputs = (REPLICATED, [REPLICATED if name in state else SPLIT for name in piece.others], REPLICATED)
    outputs = ([REPLICATED if is_kept else SPLIT for is_kept in kept], REPLICATED)
    mapped = jax.shard_map(replica, mesh=target.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
    placed = jax.tree.map(lambda spec: NamedSharding(target.mesh, spec), (inputs, outputs), is_leaf=_is_spec)
    return jax.jit(mapped, donate_argnums=0, in_shardings=placed[0], out_shardings=placed[1], compiler_options=options)


def over_one_device(run: Callable[..., Any], target: SharedDevice, piece: _Piece, options: dict[str, str]) -> Any:
    """``run``, the function of a compiled piece, jitted for replicas that share one device."""
    state, count = piece.options.state, target.replicas
    is_state = [name in state for name in piece.others]

    def replica(mutable: Any, others: Any, key_data: Any) -> Any:
        with replicas.traced_for(count):
            return run(mutable, others, key_data)

    mapped = jax.vmap(
        replica, in_axes=(None, [None if own else 0 for own in is_state], None), axis_name=AXIS, axis_size=count
    )

    def together(mutable: Any, others: Any, key_data: Any) -> Any:
        others = [v if own else _stacked_values(v, count) for v, own in zip(others, is_state, strict=True)]
        written, flags = mapped(mutable, others, key_data)
        first, flags = jax.tree.map(lambda x: x[0], (written, flags))
        return [
            own if name in state else _unstacked(value)
            for name, own, value in zip(piece.writes, first, written, strict=True)
        ], flags

    return jax.jit(together, donate_argnums=0, out_shardings=target.sharding, compiler_options=options)


def _stacked_values(value: Any, count: int) -> Any:
    if isinstance(value, PerReplica):
        return value.value
    return jax.tree.map(lambda x: x.reshape(count, x.shape[0] // count, *x.shape[1:]), value)


def _unstacked(value: Any) -> Any:
    """The inverse of `_stacked_values`."""
    if isinstance(value, Ragged | SelectedRows) or getattr(value, "ndim", 0) > 1:
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), value)
    return None if value is None else PerReplica(value)


def _is_spec(value: Any) -> bool:
    return isinstance(value, PartitionSpec)


def everywhere(flags: Sequence[Any]) -> list[Any]:
    """Whether flags hold on all replicas; while tracing one of them."""
    if replicas.count() == 1:
        return list(flags)
    return list(lax.pmin(jnp.stack(flags).astype(jnp.int32), AXIS).astype(bool))


@partial(jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=[])
@dataclass(frozen=True)
class PerReplica:
    """Values that have no rows to put one after the other, such as numbers: stacked along a new first dim."""

    value: Any


@dataclass(frozen=True)
class Copies:
    """A fetched variable of the scope: what each replica of this process has of it."""

    values: list[Any]


def _joined(value: Any) -> Any:
    if isinstance(value, Ragged | SelectedRows) or getattr(value, "ndim", 0):
        return value
    return None if value is None else PerReplica(jax.tree.map(lambda x: x[None], value))


def _own(value: Any) -> Any:
    return jax.tree.map(lambda x: x[0], value.value) if isinstance(value, PerReplica) else value


def parts_of(value: Any, target: Replicas) -> list[Any]:
    """What the replicas of this process have of a joined value, as NumPy arrays."""
    count = target.local
    if isinstance(value, PerReplica):
        stacked = jax.tree.map(_local_rows, value.value)
    else:
        stacked = jax.tree.map(lambda x: _stacked(_local_rows(x), count), value)
    return [jax.tree.map(lambda x: x[replica], stacked) for replica in range(count)]  # noqa: B023 - called at once


def copies_of(value: Any, target: Replicas) -> list[Any]:
    """What the replicas of this process have of a replicated value, as NumPy arrays."""
    leaves, structure = jax.tree.flatten(value)
    copies = [_copies(leaf, target.local) for leaf in leaves]
    return [jax.tree.unflatten(structure, own) for own in zip(*copies, strict=True)]


def _copies(leaf: Any, count: int) -> list[np.ndarray]:
    if isinstance(leaf, jax.Array) and len(leaf.addressable_shards) == count:
        return [np.asarray(shard.data) for shard in leaf.addressable_shards]
    return [np.asarray(leaf)] * count


def _local_rows(array: Any) -> np.ndarray:
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return np.asarray(array)
    return np.concatenate([np.asarray(shard.data) for shard in array.addressable_shards])


def _stacked(array: np.ndarray, count: int) -> np.ndarray:
    return array.reshape(count, array.shape[0] // count, *array.shape[1:])
