"""What can be told of operators before they run: which of them are known while tracing, which cannot be compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refluid.ops.registry import EMPTY


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


def foldable_operators(ops: Sequence[Any]) -> frozenset[int]:
    """Operators whose results are known while tracing and decide shapes: constants, and arithmetic on constants.

    A name is known or it is not: where one of its writers needs values, none of them is folded, so that a counter that
    is incremented in place can be evaluated anywhere by evaluating all its writers up to there.
    """
    wanted = {name for op in ops for slot in op.definition.static for name in op.input(slot)}
    if not wanted:
        return frozenset()
    reads, written = reads_and_writes(ops)
    known, before = set(written) - set(reads), None
    while known != before:
        before = set(known)
        for op in ops:
            if not _is_constant(op, known):
                known.difference_update(op.output_arg_names)
    return frozenset(id(op) for op in writers_behind(wanted & known, ops))


def _is_constant(op: Any, known: set[str]) -> bool:
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


def host_operators(ops: Sequence[Any], folded: frozenset[int]) -> set[int]:
    """An op whose shape depends on values cannot be compiled, and one that carries a large array is not: the array
    would become a constant of the compiled code."""
    makers: dict[str, int] = {}
    on_host = set()
    for op in ops:
        definition = op.definition
        unknown = any(makers.get(n) not in folded for slot in definition.static for n in op.input(slot))
        if definition.runs_on_host(op) or unknown or any(isinstance(v, np.ndarray) for v in op.attrs.values()):
            on_host.add(id(op))
        makers.update(dict.fromkeys(op.output_arg_names, id(op)))
    return on_host


def compiles(block: Any) -> bool:
    """Whether a block that an operator runs has nothing in it that needs the host."""
    return not host_operators(block.ops, foldable_operators(block.ops)) and all(
        compiles(inner) for op in block.ops if not callable(op.definition.host) for inner in op.sub_blocks()
    )
