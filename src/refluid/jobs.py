"""Collective jobs: programs whose replicas run in several processes, which join before the first of them runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import jax

from refluid.backend import Device
from refluid.ir.program import Program
from refluid.ir.text import operator_text
from refluid.ir.vartype import VarType
from refluid.meshes import MeshTarget, from_first_process, mesh_target
from refluid.places import Place

_MEETING = ("c_allreduce", "c_broadcast", "c_allgather", "c_reducescatter", "allreduce", "broadcast")


def meets_others(program: Program) -> bool:
    """Whether operators of a program communicate with other replicas."""
    return any(op.type.startswith(_MEETING) for block in program.blocks for op in block.ops)


def exchanges_rows(program: Program) -> bool:
    """Whether replicas of a program exchange as many rows as they are fed: those of sparse gradients, for example."""
    version, found = _exchanging.get(program, (-1, False))
    if version != program._version:
        operators = [(block, op) for block in program.blocks for op in block.ops if op.type.startswith(_MEETING)]
        given = [block._var_recursive(name) for block, op in operators for name in op.input("X")]
        found = any(variable.type == VarType.SELECTED_ROWS or -1 in variable.shape for variable in given)
        _exchanging[program] = program._version, found
    return found


def is_of_job(program: Program) -> bool:
    """Whether a program belongs to a job of several processes."""
    return len(program._trainers_endpoints) > 1


def join(program: Program) -> None:
    """Joins the processes that a program belongs to; does nothing if this process has joined them."""
    _collective().join(tuple(program._trainers_endpoints), program._trainer_id)


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
    group = _collective().current()
    return replace(mesh_target(found), around_steps=group.step, largest_of_all=group.largest)


def take_part(program: Program, place: Place) -> None:
    """Joins the processes that a program belongs to, and has it run on one device of each, here on that of ``place``.

    Such a program communicates by operators of its own, and its startup program has given all processes the same state.
    """
    join(program)
    program.target = job_target([place.device()])  # not before: joining replaces all devices
    _begun.add(program)


def begin(program: Program, holders: Mapping[str, Any]) -> None:
    """Before the first run of a program in a job: all processes bring the same one, and begin with the same state.

    Args:
      holders: by variable, what holds its value in the scope.

    Raises:
      RankError: a process brings another program.
    """
    if program.target is None or program.target.meeting is None:
        return
    if program not in _agreed:
        _collective().current().agree("program", list(_lines(program)))
        _agreed.add(program)
    if program not in _begun:
        _begun.add(program)
        names = sorted(name for name, holder in holders.items() if holder.value is not None)
        values = from_first_process([holders[name].value for name in names], program.target)
        for name, value in zip(names, values, strict=True):
            holders[name].value = value


def _lines(program: Program) -> Iterator[str]:
    """What must be the same in all processes. Seeds may differ, and the operators that join know their process."""
    yield f"{program.target.local} devices in a process"
    for block in program.blocks:
        for op in block.ops:
            if op.type not in _JOINING:
                yield re.sub(r", seed=\d+", "", operator_text(op))


def _collective() -> Any:
    return import_module("refluid.runtime.collective")


_JOINING = ("gen_nccl_id", "c_gen_nccl_id", "c_comm_init", "c_comm_init_all")
_exchanging: WeakKeyDictionary[Program, tuple[int, bool]] = WeakKeyDictionary()  # by version of the program
_agreed: WeakSet[Program] = WeakSet()  # programs that all processes have
_begun: WeakSet[Program] = WeakSet()  # programs whose state all processes have
