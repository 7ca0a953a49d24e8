"""Compiled pieces over the devices of a mesh: one replica of the piece on each.

State is replicated, but for what devices share out. Feeds, and what pieces pass on or return, belong to a replica each;
outside of the piece these are one array, with the rows of the replicas one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from refluid.lowering.joined import PerReplica
from refluid.meshes import MeshTarget, SharedDevice
from refluid.ops.core import replicas
from refluid.ops.core.replicas import AXIS
from refluid.ops.core.values import Ragged, SelectedRows

REPLICATED, SPLIT = PartitionSpec(), PartitionSpec(AXIS)


class _Piece(Protocol):
    """What is needed of a compiled piece."""

    mutable: tuple[str, ...]
    others: tuple[str, ...]
    writes: tuple[str, ...]
    options: Any


def over_mesh(run: Callable[..., Any], target: MeshTarget, piece: _Piece, options: dict[str, str]) -> Any:
    """``run``, the function of a compiled piece, jitted for the replicas of a mesh."""
    state = piece.options.state
    is_state = [name in state for name in piece.others]
    kept = [name in state for name in piece.writes]

    def replica(mutable: Any, others: Any, key_data: Any) -> Any:
        with replicas.traced_for(target.replicas):
            others = [value if own else _own(value) for value, own in zip(others, is_state, strict=True)]
            written, flags = run(mutable, others, key_data)
        return [value if is_kept else _joined(value) for value, is_kept in zip(written, kept, strict=True)], flags

    def of_replicas(name: str) -> PartitionSpec:
        return REPLICATED if name in state and name not in piece.options.sharded else SPLIT

    def of_devices(name: str) -> NamedSharding:
        return NamedSharding(target.mesh, piece.options.partitions.get(name, of_replicas(name)))

    def forms(of: Callable[[str], Any], other: Any) -> tuple[Any, Any]:
        mutable, others, writes = ([of(name) for name in each] for each in (piece.mutable, piece.others, piece.writes))
        return (mutable, others, other), (writes, other)

    inputs, outputs = forms(of_replicas, REPLICATED)
    mapped = jax.shard_map(
        replica, mesh=target.mesh, in_specs=inputs, out_specs=outputs, axis_names={AXIS}, check_vma=False
    )
    placed, written = forms(of_devices, NamedSharding(target.mesh, REPLICATED))
    return jax.jit(mapped, donate_argnums=0, in_shardings=placed, out_shardings=written, compiler_options=options)


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


def everywhere(flags: Sequence[Any]) -> list[Any]:
    """Whether flags hold on all replicas; while tracing one of them."""
    if replicas.count() == 1:
        return list(flags)
    return list(lax.pmin(jnp.stack(flags).astype(jnp.int32), AXIS).astype(bool))


def _joined(value: Any) -> Any:
    if isinstance(value, Ragged | SelectedRows) or getattr(value, "ndim", 0):
        return value
    return None if value is None else PerReplica(jax.tree.map(lambda x: x[None], value))


def _own(value: Any) -> Any:
    return jax.tree.map(lambda x: x[0], value.value) if isinstance(value, PerReplica) else value
