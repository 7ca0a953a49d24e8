"""Constants known while tracing: operators on them are evaluated early, because their results determine shapes."""

from __future__ import annotations

from collections.abc import Sequence

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ops.core.registry import BOUNDARY, EMPTY


def reads_and_writes(ops: Sequence[Operator]) -> tuple[list[str], list[str]]:
    """The names read before they are written, and all names written, in order of appearance."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for op in ops:
        for name in op.input_arg_names:
            if name != EMPTY and name not in writes:
                reads[name] = None
        writes.update(dict.fromkeys(name for name in op.output_arg_names if name != EMPTY))
    return list(reads), list(writes)


def foldable_operators(ops: Sequence[Operator], outside: frozenset[str] = frozenset()) -> frozenset[int]:
    """The ids of operators that are evaluated while tracing: constants that determine shapes, and arithmetic on them.

    Args:
      outside: names that are known before the operators run.
    """
    wanted = static_reads(ops)
    if not wanted:
        return frozenset()
    known, constant = set(outside), []
    for op in ops:
        _pass(op, known, constant)
    return frozenset(id(op) for op in writers_behind(wanted, constant))


def known_before(ops: Sequence[Operator], operator: Operator, outside: frozenset[str] = frozenset()) -> set[str]:
    """The names that are known while tracing before ``operator`` runs."""
    known = set(outside)
    for op in ops:
        if op is operator:
            break
        _pass(op, known, [])
    return known


def _pass(op: Operator, known: set[str], constant: list[Operator]) -> None:
    if _is_known(op, known):
        known.update(op.output_arg_names)
        constant.append(op)
    else:
        known.difference_update(op.output_arg_names)


def known_around(block: Block) -> frozenset[str]:
    """The names of enclosing blocks that are known while tracing in every run of ``block``."""
    outer = block.parent
    if outer is None:
        return frozenset()
    runner = next((op for op in outer.ops if block in op.sub_blocks()), None)
    if runner is None:
        return frozenset()
    changed = {name for op in runner.within() for name in op.output_arg_names}
    return frozenset(known_before(outer.ops, runner, known_around(outer)) - changed)


def static_reads(ops: Sequence[Operator]) -> set[str]:
    """The names that must be known while tracing, for the operators and those in their blocks."""
    wanted = {name for op in ops for slot in op.definition.static for name in op.input(slot)}
    for block in (block for op in ops for block in op.sub_blocks()):
        inner = static_reads(block.ops)
        behind = writers_behind(inner, block.ops)
        inner |= {name for op in behind if not is_constant(op) for name in op.input_arg_names}
        wanted |= inner - {name for op in behind for name in op.output_arg_names}
    return wanted


def writers_behind(wanted: set[str], ops: Sequence[Operator]) -> list[Operator]:
    """The operators that write the ``wanted`` names, and those that write what these read, and so on."""
    while True:
        writers = [op for op in ops if wanted.intersection(op.output_arg_names)]
        reads = {name for op in writers if not is_constant(op) for name in op.input_arg_names}
        if reads <= wanted:
            return writers
        wanted = wanted | reads


def is_constant(op: Operator) -> bool:
    """Whether the results of an operator are known while tracing, regardless of the values it reads."""
    constant = op.definition.constant
    return is_list(op) if constant == "of_list" else constant


def is_list(op: Operator) -> bool:
    """Whether only writes at known positions fill the array ``X``; its length does not depend on sequence lengths."""
    (name,) = op.input("X")
    return all(each.type == "write_to_array" for each in op.block.ops if name in each.output_arg_names)


def _is_known(op: Operator, known: set[str]) -> bool:
    if op.type in BOUNDARY:
        return False
    definition = op.definition
    if definition.random or definition.host or "run_block" in definition.services:
        return False
    return is_constant(op) or all(name in known for name in op.input_arg_names)
