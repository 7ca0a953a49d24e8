"""Decides which operators between gradients and updates run on trainers, and which variables are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refluid.ir import Operator
from refluid.ir.modes import Mode
from refluid.transpiler.dataflow import Flow
from refluid.transpiler.parts import Parts, Update


@dataclass(frozen=True)
class Gradients:
    """What trainers do with gradients before they are sent."""

    ops: tuple[Operator, ...]  # in order
    sent: Mapping[str, str]  # parameter -> the variable that holds its final gradient


def gradients_on_trainer(parts: Parts, mode: Mode) -> Gradients:
    """In sync mode none: servers clip the average. In other modes the operators that need gradients only: clipping."""
    raw = {update.param.name: update.grad for update in parts.updates}
    if mode is Mode.SYNC:
        return Gradients((), raw)
    flow = parts.flow
    known, constant, kept = set(raw.values()), set[str](), []
    for op in parts.between:
        needs = flow.reads(op)
        if not needs:
            constant |= flow.writes(op)
        elif needs <= known | constant and needs & known:
            kept.append(op)
            known |= flow.writes(op)
        else:
            known -= flow.writes(op)
    read = {name for op in kept for name in flow.reads(op)}
    constants = [op for op in parts.between if not flow.reads(op) and flow.writes(op) & read]
    chosen = {id(op) for op in (*kept, *constants)}
    sent = {update.param.name: _arriving(update, chosen, flow) for update in parts.updates}
    return Gradients(tuple(op for op in parts.between if id(op) in chosen), sent)


def _arriving(update: Update, on_trainer: set[int], flow: Flow) -> str:
    """The gradient that the server's operators of an update read."""
    gradients, found, made = {update.grad}, set[str](), set[str]()
    for op in update.ops:
        if id(op) in on_trainer:
            gradients |= flow.writes(op)
        else:
            found |= (flow.reads(op) - made) & gradients
            made |= flow.writes(op)
    if len(found) != 1:
        raise update.optimizer.error(f"the update of {update.param.name} needs {len(found)} gradients: {sorted(found)}")
    return found.pop()
