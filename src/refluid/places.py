"""Places: where values live and programs run, as JAX devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax

from refluid import backend
from refluid.flags import read_flag


@dataclass(frozen=True)
class CPUPlace:
    """The host's processor."""

    def device(self) -> Any:
        return _devices("cpu")[0]


@dataclass(frozen=True)
class CUDAPlace:
    """A GPU, by its number."""

    device_id: int = 0

    def __post_init__(self):
        found = _devices("gpu")
        if self.device_id >= len(found):
            have = f"JAX sees {len(found)} GPU(s)" if found else "JAX sees no GPU on this machine"
            raise RuntimeError(
                f"CUDAPlace({self.device_id}): {have}; use fluid.CPUPlace(), or install JAX with GPU support"
            )

    def device(self) -> Any:
        return _devices("gpu")[self.device_id]


@dataclass(frozen=True)
class CUDAPinnedPlace(CPUPlace):
    """Page-locked host memory; JAX stages transfers by itself, so this is the host."""


Place = CPUPlace | CUDAPlace


@cache
def _devices(platform: str) -> list[Any]:
    backend.prepare()
    try:
        return jax.devices(platform)
    except RuntimeError:  # JAX raises when a platform is absent
        return []


def is_compiled_with_cuda() -> bool:
    """Whether JAX sees a GPU."""
    return bool(_devices("gpu"))


def cuda_device_count() -> int:
    """How many GPUs JAX sees."""
    return len(_devices("gpu"))


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """CPUPlace ``device_count`` times; by default as often as CPU_NUM says, or once."""
    return [CPUPlace()] * (device_count or int(os.environ.get("CPU_NUM", "1")))


def cuda_places(device_ids: Sequence[int] | None = None) -> list[CUDAPlace]:
    """One CUDAPlace per given number; by default those of FLAGS_selected_gpus, or all GPUs."""
    if device_ids is None:
        selected = read_flag("FLAGS_selected_gpus")
        device_ids = [int(i) for i in selected.split(",")] if selected else range(max(1, cuda_device_count()))
    return [CUDAPlace(i) for i in device_ids]


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """CUDAPinnedPlace ``device_count`` times; by default as often as CPU_NUM says, or once."""
    return [CUDAPinnedPlace()] * (device_count or int(os.environ.get("CPU_NUM", "1")))
