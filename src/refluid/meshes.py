"""Meshes: several devices that run the replicas of a program together, as the target of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from refluid import backend
from refluid.backend import Device, Target, local
from refluid.ops.core.replicas import AXIS

Largest = Callable[[str, Sequence[int]], Sequence[int]]  # from what they are sizes of, and sizes


@dataclass(frozen=True)
class Replicas(Target):
    """What runs several replicas of a program in one step."""

    @property
    def local(self) -> int:
        """How many of the replicas belong to this process."""
        return self.replicas

    @property
    def largest(self) -> Largest | None:
        """What finds the largest sizes that any process has; None where there is one process."""
        return None

    def feed(self, values: Sequence[Any]) -> list[Any]:
        """Feeds in the form that the step takes; each process gives the rows of its own replicas."""
        return list(values)


@dataclass(frozen=True)
class MeshTarget(Replicas):
    """The devices of a mesh, a replica for each index of its axis `AXIS`; ``device`` is the first of this process.

    State is replicated: every device holds its own copy, and the scope reads that of the first. Along further axes,
    the devices of a replica share its state and its work.
    """

    mesh: Mesh
    around_steps: Callable[[], AbstractContextManager[None]] | None = field(default=None, compare=False)
    largest_of_all: Largest | None = field(default=None, compare=False)

    @property
    def replicas(self) -> int:
        return self.mesh.shape[AXIS]

    @property
    def is_divided(self) -> bool:
        """Whether several devices share the work of a replica."""
        return self.mesh.size > self.replicas

    @property
    def key(self) -> Any:
        return self.mesh

    @property
    def meeting(self) -> Any:
        return self.around_steps

    @property
    def largest(self) -> Largest | None:
        return self.largest_of_all

    @property
    def local(self) -> int:
        return self._local

    @cached_property
    def _local(self) -> int:
        return len(self.mesh.local_devices) * self.replicas // self.mesh.size

    @cached_property
    def split(self) -> NamedSharding:
        """The sharding of a value whose rows are split over the replicas."""
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    def placed(self, partition: PartitionSpec) -> MeshTarget:
        return replace(self, sharding=NamedSharding(self.mesh, partition))

    def move(self, values: Any) -> Any:
        """A tree of values with a copy of every array on each device."""
        return jax.tree.map(lambda x: self._replicated(x) if self._is_elsewhere(x) else x, values)

    def _replicated(self, value: Any) -> Any:
        if self.local == self.replicas:
            return jax.device_put(value, self.sharding)
        array = np.asarray(local(value))
        return jax.make_array_from_callback(array.shape, self.sharding, lambda place: array[place])

    def _is_elsewhere(self, value: Any) -> bool:
        return isinstance(value, jax.Array) and not self.sharding.is_equivalent_to(value.sharding, value.ndim)

    def feed(self, values: Sequence[Any]) -> list[Any]:
        if self.local == self.replicas:
            return list(values)
        return jax.tree.map(lambda x: jax.make_array_from_process_local_data(self.split, np.asarray(x)), list(values))


@dataclass(frozen=True)
class SharedDevice(Replicas):
    """One device that runs several replicas together, as one computation on larger arrays.

    For more replicas than JAX has devices: their number is fixed when JAX starts, and CPU_NUM may be set later.
    """

    count: int

    @property
    def replicas(self) -> int:
        return self.count

    @property
    def key(self) -> Any:
        return self.device, self.count


def mesh_target(devices: Sequence[Device]) -> MeshTarget:
    """The target of a step with one replica on each of these devices."""
    return _mesh_target(Mesh(np.array(devices), (AXIS,)))


def divided_target(mesh: Mesh, axes: Sequence[str]) -> MeshTarget:
    """The target of a step with replicas along all axes of a mesh but these, along which devices share a replica."""
    order = [*(name for name in mesh.axis_names if name not in axes), *axes]
    devices = mesh.devices.transpose([mesh.axis_names.index(name) for name in order])
    return _mesh_target(Mesh(devices.reshape(-1, *(mesh.shape[name] for name in axes)), (AXIS, *axes)))


@cache
def _mesh_target(mesh: Mesh) -> MeshTarget:
    here = mesh.local_devices[0]
    return MeshTarget(here, NamedSharding(mesh, PartitionSpec()), here.platform == "cpu", mesh)


def from_first_process(values: Sequence[Any], target: MeshTarget) -> list[Any]:
    """The arrays that the first process gives, in all processes; each gives as many, of the same shapes."""
    arrays = [np.asarray(local(value)) for value in values]
    stacked = [
        jax.make_array_from_process_local_data(target.split, np.stack([array] * target.local)) for array in arrays
    ]
    return list(_first_of_all(tuple(stacked), target))


@partial(jax.jit, static_argnums=1)
def _first_of_all(stacked: tuple[Any, ...], target: MeshTarget) -> tuple[Any, ...]:
    def first(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        chosen = jax.lax.axis_index(AXIS) == 0
        given = tuple(jnp.where(chosen, part[0], jnp.zeros_like(part[0])) for part in parts)
        return tuple(jax.lax.psum(part, AXIS).astype(part.dtype) for part in given)  # a sum of truths is a number

    split, replicated = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(first, mesh=target.mesh, in_specs=split, out_specs=replicated, check_vma=False)(stacked)


backend.at_restart(_mesh_target.cache_clear)
