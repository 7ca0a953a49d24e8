"""Removal of ops from programs: those that targets do not need, training ops, readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.ir.roles import OpRole
from refluid.ir.variable import Variable, name_of
from refluid.ops.core.registry import handles_readers


def prune(program: Program, targets: Sequence[Any] | Any, feeds: Sequence[str] = ()) -> Program:
    """Returns a copy of ``program`` with only the ops of block 0 that ``targets`` need, given ``feeds``."""
    targets = targets if isinstance(targets, list | tuple) else [targets]
    copy = program._copy()
    block = copy.global_block()
    kept = needed_operators(block.ops, {_target_name(target) for target in targets}, frozenset(feeds))
    block.ops = kept
    used = set(feeds) | {_target_name(target) for target in targets}
    for each in copy.blocks:
        used |= {name for op in each.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    for each in copy.blocks:
        each.vars = {name: v for name, v in each.vars.items() if name in used}
    copy.changed()
    return copy


def _target_name(target: Any) -> str:
    if isinstance(target, Operator):
        return target.output_arg_names[0]
    if not isinstance(target, str | Variable):
        raise ValueError(f"a target must be a variable, an operator or a name, not {type(target).__name__}")
    return name_of(target)


def needed_operators(ops: Sequence[Operator], wanted: set[str], feeds: frozenset[str] = frozenset()) -> list[Operator]:
    """Returns the operators needed to compute the ``wanted`` variables, given ``feeds``."""
    wanted, kept = set(wanted) - feeds, []
    for op in reversed(ops):
        if wanted.intersection(op.output_arg_names):
            kept.append(op)
            wanted -= set(op.output_arg_names) - set(op.input_arg_names)
            reads = {*op.input_arg_names, *(n for b in op.sub_blocks() for o in b.ops for n in o.input_arg_names)}
            wanted |= reads - feeds
    return kept[::-1]


def drop_training_ops(program: Program) -> None:
    """Removes backward, optimizer and learning rate ops, and the variables that only they use."""
    block = program.global_block()
    dropped = [op for op in block.ops if _is_training(op)]
    if not dropped:
        return
    block.ops = [op for op in block.ops if not _is_training(op)]
    used = {name for b in program.blocks for op in b.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    gone = {name for op in dropped for name in (*op.input_arg_names, *op.output_arg_names)} - used
    block.vars = {name: v for name, v in block.vars.items() if name not in gone}
    program.changed()


def _is_training(op: Operator) -> bool:
    """Returns whether an op is needed for training only; lookups in tables on servers are needed in tests too."""
    if op.role & (OpRole.RPC | OpRole.Dist):
        return op.type != "distributed_lookup_table"
    return bool(op.role & (OpRole.Backward | OpRole.Optimize))


def set_test_mode(program: Program) -> None:
    """Sets is_test on every op that has the attribute."""
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr("is_test"):
                op.attrs["is_test"] = True
            if op.type == "batch_norm" and op.has_attr("trainable_statistics"):
                op.attrs["trainable_statistics"] = False
    program._is_test = True
    program.changed()


def drop_readers(program: Program) -> None:
    """Removes the ops that read data inside the program, and everything before the last of them."""
    block = program.global_block()
    last = max((i for i, op in enumerate(block.ops) if handles_readers(op.type)), default=-1)
    block.ops = block.ops[last + 1 :]
    block.vars = {name: v for name, v in block.vars.items() if v.type.name != "READER"}
    program.changed()
