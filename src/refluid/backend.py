"""XLA in this process: how its client runs computations, and how it compiles them for a device.

Code that may be the first to need a device calls `prepare`, because JAX creates the client once. See
docs/decisions/0003-inline-dispatch.md and 0004-matrix-products.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from jax._src import xla_bridge
from jax.extend.backend import clear_backends
from jax.sharding import PartitionSpec, Sharding, SingleDeviceSharding

_ASYNC_DISPATCH = "jax_cpu_enable_async_dispatch"
# What XLA leaves to YNNPACK: by default matrix products, of which it computes the smaller ones on one core only.
_PRODUCTS = "xla_cpu_experimental_ynn_fusion_type"

_DEVICES, _DEVICES_FLAG = "jax_num_cpu_devices", "xla_force_host_platform_device_count"

Values = TypeVar("Values")


class Device(Protocol):
    """A JAX device. `jax.Device` comes from a compiled module that type checkers cannot read."""

    id: int
    platform: str


@cache
def prepare() -> None:
    """Lets the calling thread run compiled steps on a CPU, unless JAX_CPU_ENABLE_ASYNC_DISPATCH=1 is set.

    By default another thread does, and small steps spend most of their time waking it and waiting for it. Where the
    client exists already, because the user's own JAX created it, this changes nothing.
    """
    _ask_for_devices()
    chosen = os.environ.get(_ASYNC_DISPATCH.upper(), "0")  # JAX itself reads the environment for other settings only
    if chosen.lower() not in ("1", "true", "yes", "on"):
        jax.config.update(_ASYNC_DISPATCH, False)


def _ask_for_devices() -> None:
    """Lets JAX have a CPU device for each core, unless the user says how many: replicas of a program need several.

    Their number is fixed when JAX starts, but scripts set CPU_NUM later. Devices that nobody uses cost nothing: as long
    as there are no more than cores, XLA has as many threads as with one.
    """
    if _DEVICES_FLAG in os.environ.get("XLA_FLAGS", "") or getattr(jax.config, _DEVICES) >= 0:
        return
    with suppress(RuntimeError):  # the user's own JAX has started already
        jax.config.update(_DEVICES, len(os.sched_getaffinity(0)))


_at_restart: list[Callable[[], object]] = []


def at_restart(forget: Callable[[], object]) -> None:
    """Has ``forget`` called when XLA's clients, and with them all devices, are replaced."""
    _at_restart.append(forget)


def restart() -> None:
    """Replaces XLA's clients if there are any: settings that JAX reads only once, such as its devices, can then change.

    Arrays stay on the devices they are on. Steps move them when they are bound, as they do with those of other devices.
    """
    if xla_bridge.backends_are_initialized():
        clear_backends()
        for forget in _at_restart:
            forget()


@dataclass(frozen=True)
class Target:
    """A device to run on, and what follows from it for compiled steps.

    Attributes:
      is_cpu: whether steps use our kernels, keep images channels-last and read fed arrays in place. Accelerators
        have kernels, layouts and memory of their own.
    """

    device: Device
    sharding: Sharding
    is_cpu: bool

    @property
    def replicas(self) -> int:
        """How many copies of a program a step runs; see `refluid.meshes`."""
        return 1

    @property
    def meeting(self) -> Any:
        """What runs around a step in which other processes take part; None without them."""
        return None

    @property
    def key(self) -> Any:
        """Identifies what steps are compiled for."""
        return self.device

    def placed(self, partition: PartitionSpec) -> Target:
        """Where state is that devices share out like this; see `refluid.meshes`."""
        return self

    def compiler_options(self, shares_products: bool) -> dict[str, str]:
        """Options that a step is compiled with, in addition to those that the user sets in XLA_FLAGS.

        Args:
          shares_products: whether several cores should share the smaller matrix products of the step.
        """
        if not self.is_cpu or not shares_products or _PRODUCTS in os.environ.get("XLA_FLAGS", ""):
            return {}
        return {_PRODUCTS: ""} if len(os.sched_getaffinity(0)) > 1 else {}

    def holds(self, values: Any) -> bool:
        """Whether no array in a tree of values lives on another device. NumPy arrays live nowhere yet."""
        return not any(map(self._is_elsewhere, jax.tree.leaves(values)))

    def move(self, values: Values) -> Values:
        """A tree of values with the arrays that live on other devices copied to this one."""
        return jax.tree.map(lambda x: jax.device_put(local(x), self.device) if self._is_elsewhere(x) else x, values)

    def _is_elsewhere(self, value: Any) -> bool:
        return isinstance(value, jax.Array) and value.devices() != {self.device}


def local(value: Any) -> Any:
    """The array of this process, where other processes have copies of it."""
    shared = isinstance(value, jax.Array) and not value.is_fully_addressable
    return value.addressable_shards[0].data if shared else value


def local_rows(value: Any) -> np.ndarray:
    """The rows that this process has of an array, where others have further ones."""
    if not isinstance(value, jax.Array) or value.is_fully_addressable:
        return np.asarray(value)
    return np.concatenate([np.asarray(shard.data) for shard in value.addressable_shards])


@cache
def target(device: Device) -> Target:
    """What is known about compiling for a device."""
    return Target(device, SingleDeviceSharding(device), device.platform == "cpu")


at_restart(target.cache_clear)
