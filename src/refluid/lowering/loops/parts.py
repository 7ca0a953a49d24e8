"""Decides which operators of a loop over steps can run outside the loop.

A row-wise operator computes the same rows whether it gets those of one step or of all steps. So it can run before the
loop if it depends on no memory, and after the loop if no memory depends on it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from refluid.ir.operator import Operator
from refluid.lowering.loops.forms import StepForm
from refluid.ops.core.values import Ragged


@dataclass(frozen=True)
class Parts:
    """The operators that run before the loop, in it, and after it; and the names that cross from one to the next."""

    early: tuple[Operator, ...]
    core: tuple[Operator, ...]
    late: tuple[Operator, ...]
    given: tuple[str, ...]  # rows of all steps that the loop reads
    kept: tuple[str, ...]  # rows that are collected in the loop for operators after it


def split_body(form: StepForm, shapes: dict[str, Any], sliced: set[str], early: set[str]) -> Parts:
    """Splits the body of a loop.

    Args:
      shapes: the shape of each variable in one iteration.
      sliced: the step inputs that are rows.
      early: those of them that are stored in the order of the loop, so that one call can handle all steps.
    """
    reads = {name for names in form.inputs.values() for name in names}
    rows = {name for name, value in shapes.items() if is_rows(value)}
    writes = Counter(name for op in form.body for name in op.output_arg_names)
    local = {*writes, *reads, *(name for memory in form.memories for name in memory.reads), form.counter}
    movable = {id(op) for op in form.body if _is_row_wise(op, shapes, rows, local, writes)}

    known, first = set(early), []
    for op in form.body:
        if id(op) in movable and local.intersection(op.input_arg_names) <= known:
            first.append(op)
            known.update(op.output_arg_names)
    rest = [op for op in form.body if not any(op is other for other in first)]

    held, last = {memory.after for memory in form.memories}, []
    for op in reversed(rest):
        if id(op) in movable and not held.intersection(op.output_arg_names):
            last.insert(0, op)
        else:
            held.update(op.input_arg_names)
    core = tuple(op for op in rest if not any(op is other for other in last))

    made = {name for op in core for name in op.output_arg_names} | (reads - early)
    made.update(name for memory in form.memories for name in memory.reads)
    wanted = {*form.outputs.values(), *(name for op in last for name in op.input_arg_names)}
    kept = sorted(made & wanted)
    used = {*kept, *(memory.after for memory in form.memories), *(name for op in core for name in op.input_arg_names)}
    given = sorted((known | sliced) & used)
    return Parts(tuple(first), core, tuple(last), tuple(given), tuple(kept))


def is_rows(value: Any) -> bool:
    """Whether a value is rows of one step, rather than sequences or something else."""
    return isinstance(value, Ragged) and not value.levels


def _is_row_wise(op: Operator, shapes: dict[str, Any], rows: set[str], local: set[str], writes: Counter[str]) -> bool:
    definition = op.definition
    names = op.output_arg_names
    if definition.random or definition.lod == "aware" or op.sub_blocks() or definition.static:
        return False
    if any(writes[name] > 1 or name in op.input_arg_names for name in names):
        return False  # an overwritten name has different values at different times
    inner = local.intersection(op.input_arg_names)
    if not inner or not inner.union(names) <= rows | {n for n in names if n not in shapes}:
        return False
    arguments = {slot: [shapes.get(name) for name in given] for slot, given in op.inputs.items()}
    return definition.takes_padding(op.attrs, arguments)
