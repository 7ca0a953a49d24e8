"""Places: where values live and programs run, as JAX devices."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import jax

from refluid import backend
from refluid.backend import Device, Target
from refluid.flags import read_flag
from refluid.meshes import SharedDevice, mesh_target


@dataclass(frozen=True, repr=False)
class CPUPlace:
    """The host's processor; ``device_id`` chooses among several CPU devices of JAX, which Fluid does not have."""

    device_id: int = 0

    def __post_init__(self):
        if self.device_id:  # device 0 is always there, and looking for it would set up the client
            _check_device(self, "cpu", "set JAX's jax_num_cpu_devices to have more")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device_id or ''})"

    def device(self) -> Device:
        """The JAX device."""
        return _devices("cpu")[self.device_id]


@dataclass(frozen=True, repr=False)
class CUDAPinnedPlace(CPUPlace):
    """Page-locked host memory; JAX stages transfers by itself, so this is the host."""


@dataclass(frozen=True, repr=False)
class CUDAPlace:
    """A GPU, by its number."""

    device_id: int = 0

    def __post_init__(self):
        _check_device(self, "gpu", "use fluid.CPUPlace(), or install JAX with GPU support")

    def __repr__(self) -> str:
        return f"CUDAPlace({self.device_id})"

    def device(self) -> Device:
        """The JAX device."""
        return _devices("gpu")[self.device_id]


Place = CPUPlace | CUDAPlace


def check_place(place: object, what: str) -> None:
    """Raises unless ``place`` is one; ``what`` names the place's user."""
    if not isinstance(place, CPUPlace | CUDAPlace):
        raise TypeError(
            f"{what} takes a place, such as fluid.CPUPlace() or fluid.CUDAPlace(0), "
            f"not {place!r} of type {type(place).__name__}"
        )


def _check_device(place: Place, platform: str, hint: str) -> None:
    kind = platform.upper()
    found = len(_devices(platform))
    if not 0 <= place.device_id < found:
        have = f"{found} {kind} device{'s' if found > 1 else ''}" if found else f"no {kind} on this machine"
        raise RuntimeError(f"{place}: JAX sees {have}; {hint}")


@cache
def _devices(platform: str) -> list[Device]:
    backend.prepare()
    try:
        return jax.local_devices(backend=platform)  # those of other processes cannot be used alone
    except RuntimeError:  # JAX raises when a platform is absent
        return []


backend.at_restart(_devices.cache_clear)


def is_compiled_with_cuda() -> bool:
    """Whether JAX sees a GPU."""
    return bool(_devices("gpu"))


def cuda_device_count() -> int:
    """How many GPUs JAX sees."""
    return len(_devices("gpu"))


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """CPUPlaces of devices 0, 1, ..., as many as asked for or as CPU_NUM says; of device 0 where JAX has no more."""
    count = _cpu_num(device_count)
    here = 1 if count == 1 else len(_devices("cpu"))
    return [CPUPlace(i if i < here else 0) for i in range(count)]


def cuda_places(device_ids: Sequence[int] | None = None) -> list[CUDAPlace]:
    """One CUDAPlace per given number; by default those of FLAGS_selected_gpus, or all GPUs."""
    if device_ids is None:
        selected = read_flag("FLAGS_selected_gpus")
        device_ids = [int(i) for i in selected.split(",")] if selected else range(max(1, cuda_device_count()))
    return [CUDAPlace(i) for i in device_ids]


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """CUDAPinnedPlace ``device_count`` times; by default as often as CPU_NUM says, or once."""
    return [CUDAPinnedPlace()] * _cpu_num(device_count)


def _cpu_num(device_count: int | None) -> int:
    if device_count:
        return device_count
    if "CPU_NUM" not in os.environ:
        warnings.warn("CPU_NUM is not set, so 1 CPU device is used; set it to use more", stacklevel=3)
        os.environ["CPU_NUM"] = "1"
    return int(os.environ["CPU_NUM"])


def default_places() -> list[Place]:
    """The places that replicas of a program run at: all GPUs, or as many CPU devices as CPU_NUM says."""
    return list(cuda_places()) if is_compiled_with_cuda() else list(cpu_places())


def replica_target(places: Sequence[Place]) -> Target:
    """What a step runs on that has a replica at each of these places."""
    devices = replica_devices(places)
    if len(places) == 1:
        return backend.target(devices[0])
    if len(devices) == len(places):
        return mesh_target(devices)
    return SharedDevice(
        devices[0], backend.target(devices[0]).sharding, devices[0].platform == "cpu", count=len(places)
    )


def replica_devices(places: Sequence[Place]) -> list[Device]:
    """The devices of these places, each once; fewer than places where JAX does not have as many."""
    for place in places:
        check_place(place, "with_data_parallel")
    devices = [place.device() for place in places]
    if len(set(devices)) < len(devices):  # Fluid's CPU places are all alike
        devices = _devices(devices[0].platform)[: len(places)]
    return devices
