"""Which operators between gradients and updates run on trainers, and which variables are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refluid.ir import Operator
from refluid.transpiler.config import Mode
from refluid.transpiler.dataflow import reads, writes
from refluid.transpiler.parts import Parts, Update


@dataclass(frozen=True)
class Gradients:
    """What trainers do with gradients before they are sent."""

    ops: tuple[Operator, ...]  # in order
    sent: Mapping[str, str]  # parameter -> the variable that holds its gradient in the end


def gradients_on_trainer(parts: Parts, mode: Mode) -> Gradients:
    """In sync mode nothing: servers clip the average. Otherwise what needs gradients alone, which is clipping."""
    raw = {update.param.name: update.grad for update in parts.updates}
    if mode is Mode.SYNC:
        return Gradients((), raw)
    known, constant, kept = set(raw.values()), set[str](), []
    for op in parts.between:
        needs = reads(op)
        if not needs:
            constant |= writes(op)
        elif needs <= known | constant and needs & known:
            kept.append(op)
            known |= writes(op)
        else:
            known -= writes(op)
    constants = [op for op in parts.between if not reads(op) and any(writes(op) & reads(each) for each in kept)]
    chosen = {id(op) for op in (*kept, *constants)}
    sent = {update.param.name: _arriving(update, chosen) for update in parts.updates}
    return Gradients(tuple(op for op in parts.between if id(op) in chosen), sent)


def _arriving(update: Update, on_trainer: set[int]) -> str:
    """The gradient that the operators of an update find when those on the trainer have run."""
    gradients, found, made = {update.grad}, set[str](), set[str]()
    for op in update.ops:
        if id(op) in on_trainer:
            gradients |= writes(op)
        else:
            found |= (reads(op) - made) & gradients
            made |= writes(op)
    if len(found) != 1:
        raise update.optimizer.error(f"the update of {update.param.name} needs {len(found)} gradients: {sorted(found)}")
    return found.pop()
