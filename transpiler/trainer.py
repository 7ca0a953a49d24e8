"""Trainer programs: the original program without updates, which sends gradients and receives parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refluid.ir import Operator, Program, VarType
from refluid.transpiler.exchange import Exchange
from refluid.transpiler.gradients import Gradients, gradients_on_trainer
from refluid.transpiler.lookups import look_up_remotely
from refluid.transpiler.parts import Parts, take_apart
from refluid.transpiler.placement import Placed


def trainer_program(program: Program, exchange: Exchange, *, compensated: bool = False) -> Program:
    """Turns a training program into that of one trainer.

    The result has lookups in remote tables, forward and backward, other operators of trainers, among which gradients
    are sent where they are ready, then the receipt of parameters, and last the operators that read updated ones.
    ``compensated`` says that servers change gradients before they use them (dc_asgd).
    """
    program = program.clone()
    block = program.global_block()
    parts = take_apart(program)
    gradients = gradients_on_trainer(parts, exchange.placement.mode)
    early, late = _split_at_update(_staying(block.ops, parts, gradients), parts)
    tables = {placed.param: lookup_attrs(placed, exchange) for placed in exchange.placement.params if placed.remote}
    block.ops = look_up_remotely(early, tables)
    count = len(block.ops)
    exchange.push(block, gradients.sent, set() if compensated else _linear(parts, gradients))
    leave_merging_to_sends(block.ops[:count], block.ops[count:])
    block.ops = _sent_where_ready(block.ops[:count], block.ops[count:])
    exchange.pull(block)
    block.ops += late
    program.changed()
    return program


def lookup_attrs(placed: Placed, exchange: Exchange) -> dict[str, Any]:
    """The attributes of lookups in a table on servers."""
    return {
        "table_names": placed.names,
        "epmap": placed.endpoints,
        "height_sections": placed.sections,
        **({"grows": True} if placed.grows else {}),
        **exchange.attrs,
    }


def leave_merging_to_sends(ops: Sequence[Operator], pushes: Sequence[Operator]) -> None:
    """Has sums of sparse gradients that are only sent keep repeated rows.

    A send makes rows unique by hashing their ids; sorting them in the compiled step would take many times as long.
    """
    read = {name for op in ops for inner in op.within() for name in inner.input_arg_names}
    sent = {name for op in pushes for name in op.input_arg_names} - read
    for op in ops:
        if op.type == "sum" and sent.issuperset(op.output("Out")):
            (total,) = op.output("Out")
            if op.block.var(total).type == VarType.SELECTED_ROWS:
                op.attrs["merges_rows"] = False


def _sent_where_ready(ops: Sequence[Operator], pushes: Sequence[Operator]) -> list[Operator]:
    """The operators, each followed by those that split and send the gradients it completes; barriers come last.

    So real Fluid's programs read. A plan delays these operators, so that there still is one exchange, at the end.
    """
    made = {name: place for place, op in enumerate(ops) for inner in op.within() for name in inner.output_arg_names}
    following: dict[int, list[Operator]] = {}
    last = len(ops) - 1
    for op in pushes:
        place = max((made.get(name, last) for name in op.input_arg_names), default=last)
        made.update(dict.fromkeys(op.output_arg_names, place))
        following.setdefault(place, []).append(op)
    return [each for place, op in enumerate(ops) for each in (op, *following.get(place, ()))]


def _linear(parts: Parts, gradients: Gradients) -> set[str]:
    """The parameters whose update is plain SGD: servers do nothing else with the gradient."""
    here = {id(op) for op in gradients.ops}
    return {
        update.param.name
        for update in parts.updates
        if update.optimizer.type == "sgd" and all(op is update.optimizer or id(op) in here for op in update.ops)
    }


def _staying(ops: Sequence[Operator], parts: Parts, gradients: Gradients) -> list[Operator]:
    """The operators that trainers run, in order: the rest, clipping, and schedules that the rest reads."""
    flow = parts.flow
    read = {name for op in parts.rest for name in flow.reads(op)}
    states = read & {name for update in parts.updates for name in update.states}
    if states:
        reader = next(op for op in parts.rest if flow.reads(op) & states)
        raise reader.error(f"{', '.join(sorted(states))} lives on the servers; trainers cannot read it")
    trained = {update.param.name for update in parts.updates}
    for op in parts.rest:
        if flow.writes(op) & trained:
            written = ", ".join(sorted(flow.writes(op) & trained))
            raise op.error(f"it writes {written}, which servers update; this is not supported in distributed training")
    staying = {id(op) for op in (*parts.rest, *gradients.ops, *flow.behind(read, parts.schedule))}
    return [op for op in ops if id(op) in staying]


def _split_at_update(ops: Sequence[Operator], parts: Parts) -> tuple[list[Operator], list[Operator]]:
    """The operators before the exchange, and those after it, which read updated parameters."""
    flow = parts.flow
    updated = {update.param.name: flow.place(update.optimizer) for update in parts.updates}
    early, late, made_late = [], [], set[str]()
    for op in ops:
        names = flow.reads(op)
        if names & made_late or any(name in updated and updated[name] < flow.place(op) for name in names):
            late.append(op)
            made_late |= flow.writes(op)
        else:
            early.append(op)
    return early, late
