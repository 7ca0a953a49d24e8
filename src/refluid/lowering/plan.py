"""Cutting a block into compiled pieces and host calls, and what each of them reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refluid.ir.backward import EMPTY
from refluid.ir.block import Block
from refluid.ir.operator import BOUNDARY, Operator
from refluid.ir.prune import needed_operators
from refluid.lowering.interpreter import Schedule


@dataclass(frozen=True)
class Piece:
    """Consecutive operators that run together: compiled, or one by one on the host."""

    schedule: Schedule
    on_host: bool
    reads: tuple[str, ...]  # names that must have a value before
    writes: tuple[str, ...]  # names somebody needs afterwards

    @property
    def is_random(self) -> bool:
        return any(op.definition.random for op in self.schedule.ops)


@dataclass(frozen=True)
class Plan:
    """How one block runs for one set of feeds and fetches."""

    block: Block
    pieces: tuple[Piece, ...]
    reads: tuple[str, ...]  # names the block needs from feeds or the scope
    persists: tuple[str, ...]  # persistable names it writes


def make_plan(block: Block, fetches: Sequence[str], feeds: Sequence[str] | None = None) -> Plan:
    """Plans the operators of ``block``; ``fetches`` must have a value at the end.

    With ``feeds``, operators that lead neither to a fetch nor to state are left out.
    """
    ops = [op for op in block.ops if op.type not in BOUNDARY]
    if feeds is not None:
        ops = needed_operators(ops, {*fetches, *_persistable_writes(block, ops)}, frozenset(feeds))
    folded = foldable_operators(ops)
    groups = _group(ops, folded)
    persists = _persistable_writes(block, ops)
    needed = set(fetches) | set(persists)
    pieces: list[Piece] = []
    for position in reversed(range(len(groups))):
        group, on_host = groups[position]
        if position:
            earlier = [op for before, _ in groups[:position] for op in before]
            group = [*_folded_before(group, earlier, folded), *group]
        reads, written = reads_and_writes(group)
        pieces.append(
            Piece(Schedule.of(group, folded), on_host, tuple(reads), tuple(n for n in written if n in needed))
        )
        needed |= set(reads)
    reads, written = reads_and_writes(ops)
    reads = [*reads, *(name for name in dict.fromkeys(fetches) if name not in written and name not in reads)]
    return Plan(block, tuple(reversed(pieces)), tuple(reads), tuple(persists))


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


def foldable_operators(ops: Sequence[Operator]) -> frozenset[int]:
    """Operators whose results are known while tracing and decide shapes: constants, and arithmetic on constants."""
    constant: dict[str, Operator | None] = {}
    for op in ops:
        definition = op.definition
        known = not definition.random and not definition.host and _is_constant(op, constant)
        constant.update(dict.fromkeys(op.output_arg_names, op if known else None))
    wanted = {name for op in ops for slot in op.definition.static for name in op.input(slot)}
    folded: set[int] = set()
    for op in reversed(ops):
        makers = [constant.get(name) for name in op.output_arg_names]
        if wanted.intersection(op.output_arg_names) and all(maker is op for maker in makers):
            folded.add(id(op))
            if not op.definition.constant:
                wanted.update(op.input_arg_names)
    return frozenset(folded)


def _is_constant(op: Operator, constant: dict[str, Operator | None]) -> bool:
    return op.definition.constant or all(constant.get(name) is not None for name in op.input_arg_names)


def _group(ops: Sequence[Operator], folded: frozenset[int]) -> list[tuple[list[Operator], bool]]:
    """Runs of operators that go together. An op whose shape depends on values cannot be compiled, and one that carries
    a large array is not: the array would become a constant of the compiled code."""
    makers: dict[str, int] = {}
    groups: list[tuple[list[Operator], bool]] = []
    for op in ops:
        definition = op.definition
        unknown = [n for slot in definition.static for n in op.input(slot) if makers.get(n) not in folded]
        on_host = definition.host or bool(unknown) or any(isinstance(v, np.ndarray) for v in op.attrs.values())
        if not groups or groups[-1][1] != on_host:
            groups.append(([], on_host))
        groups[-1][0].append(op)
        makers.update(dict.fromkeys(op.output_arg_names, id(op)))
    return groups


def _folded_before(group: Sequence[Operator], earlier: Sequence[Operator], folded: frozenset[int]) -> list[Operator]:
    """The constants of earlier pieces that decide shapes in this one; a value that crosses pieces is no constant."""
    wanted = {name for op in group for slot in op.definition.static for name in op.input(slot)}
    found = []
    for op in reversed(earlier):
        if id(op) in folded and wanted.intersection(op.output_arg_names):
            found.append(op)
            wanted.update(op.input_arg_names)
    return found[::-1]


def _persistable_writes(block: Block, ops: Sequence[Operator]) -> list[str]:
    names: dict[str, None] = {}
    for op in ops:
        for name in op.output_arg_names:
            variable = block.find_var_recursive(name)
            if variable is not None and variable.persistable:
                names[name] = None
    return list(names)
