"""What can be told of operators before they run: which of them are known while tracing, which cannot be compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refluid.ops.core.registry import BOUNDARY, EMPTY

_KNOWN = 0  # no operator has this id


def reads_and_writes(ops: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The names read before they are written, and all names written, in order of appearance."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for op in ops:
        for name in op.input_arg_names:
            if name != EMPTY and name not in writes:
                reads[name] = None
        writes.update(dict.fromkeys(name for name in op.output_arg_names if name != EMPTY))
    return list(reads), list(writes)


def foldable_operators(ops: Sequence[Any], outside: frozenset[str] = frozenset()) -> frozenset[int]:
    """Operators whose results are known while tracing and decide shapes: constants, and arithmetic on constants.

    Args:
      outside: names that are known where the operators begin.
    """
    wanted = static_reads(ops)
    if not wanted:
        return frozenset()
    known, constant = set(outside), []
    for op in ops:
        _pass(op, known, constant)
    return frozenset(id(op) for op in writers_behind(wanted, constant))


def known_before(ops: Sequence[Any], operator: Any, outside: frozenset[str] = frozenset()) -> set[str]:
    """The names that are known while tracing when ``operator`` begins."""
    known = set(outside)
    for op in ops:
        if op is operator:
            break
        _pass(op, known, [])
    return known


def _pass(op: Any, known: set[str], constant: list[Any]) -> None:
    if _is_constant(op, known):
        known.update(op.output_arg_names)
        constant.append(op)
    else:
        known.difference_update(op.output_arg_names)


def known_around(block: Any) -> frozenset[str]:
    """The names of enclosing blocks that are known while tracing in every run of ``block``."""
    outer = block.parent
    if outer is None:
        return frozenset()
    runner = next((op for op in outer.ops if block in op.sub_blocks()), None)
    if runner is None:
        return frozenset()
    changed = {name for op in runner.within() for name in op.output_arg_names}
    return frozenset(known_before(outer.ops, runner, known_around(outer)) - changed)


def static_reads(ops: Sequence[Any]) -> set[str]:
    """What must be known while tracing, by the operators and those in their blocks."""
    wanted = {name for op in ops for slot in op.definition.static for name in op.input(slot)}
    for block in (block for op in ops for block in op.sub_blocks()):
        inner = static_reads(block.ops)
        behind = writers_behind(inner, block.ops)
        inner |= {name for op in behind if not op.definition.is_constant(op) for name in op.input_arg_names}
        wanted |= inner - {name for op in behind for name in op.output_arg_names}
    return wanted


def _is_constant(op: Any, known: set[str]) -> bool:
    if op.type in BOUNDARY:
        return False
    definition = op.definition
    if definition.random or definition.host or "run_block" in definition.services:
        return False
    return definition.is_constant(op) or all(name in known for name in op.input_arg_names)


def writers_behind(wanted: set[str], ops: Sequence[Any]) -> list[Any]:
    """The operators that write the ``wanted`` names, and those that write what these read, and so on."""
    while True:
        writers = [op for op in ops if wanted.intersection(op.output_arg_names)]
        reads = {name for op in writers if not op.definition.is_constant(op) for name in op.input_arg_names}
        if reads <= wanted:
            return writers
        wanted = wanted | reads


def host_operators(ops: Sequence[Any], folded: frozenset[int], outside: frozenset[str] = frozenset()) -> set[int]:
    """An op whose shape depends on values cannot be compiled, and one that carries a large array is not: the array
    would become a constant of the compiled code."""
    makers: dict[str, Any] = dict.fromkeys(outside, _KNOWN)
    folded = folded | {_KNOWN}
    on_host = set()
    for op in ops:
        definition = op.definition
        unknown = any(makers.get(n) not in folded for slot in definition.static for n in op.input(slot))
        if definition.runs_on_host(op) or unknown or any(isinstance(v, np.ndarray) for v in op.attrs.values()):
            on_host.add(id(op))
        makers.update(dict.fromkeys(op.output_arg_names, id(op)))
    return on_host


def needs_host(ops: Sequence[Any], block: Any) -> bool:
    """Whether one of these operators of a block that is being compiled cannot be."""
    outside = known_around(block)
    return bool(host_operators(ops, foldable_operators(ops, outside), outside))


def compiles(block: Any) -> bool:
    """Whether a block that an operator runs has nothing in it that needs the host."""
    return not needs_host(block.ops, block) and all(
        compiles(inner) for op in block.ops if not callable(op.definition.host) for inner in op.sub_blocks()
    )
