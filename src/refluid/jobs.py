"""Collective jobs: programs whose replicas run in several processes, which join before the first of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import jax

from refluid.backend import Device
from refluid.ir.program import Program
from refluid.meshes import MeshTarget, mesh_target

_MEETING = ("c_allreduce", "c_broadcast", "c_allgather", "c_reducescatter", "allreduce", "broadcast")


def meets_others(program: Program) -> bool:
    """Whether operators of a program communicate with other replicas."""
    return any(op.type.startswith(_MEETING) for block in program.blocks for op in block.ops)


def is_of_job(program: Program) -> bool:
    """Whether a program belongs to a job of several processes."""
    return len(program._trainers_endpoints) > 1


def join(program: Program) -> None:
    """Joins the processes that a program belongs to; does nothing if this process has joined them."""
    import_module("refluid.runtime.collective").join(tuple(program._trainers_endpoints), program._trainer_id)


def job_target(devices: Sequence[Device]) -> MeshTarget:
    """What a step runs on that has a replica on each of these devices, and on as many of every other process."""
    mine, platform = jax.process_index(), devices[0].platform
    found: list[Device] = []
    for process in range(jax.process_count()):
        theirs = [device for device in jax.devices(platform) if device.process_index == process]
        chosen = list(devices) if process == mine else theirs[: len(devices)]
        if len(chosen) < len(devices):
            raise RuntimeError(
                f"process {process} has {len(chosen)} {platform} devices, but {len(devices)} are used here; "
                "all processes must use as many (CPU_NUM, places)"
            )
        found += chosen
    return mesh_target(found)
