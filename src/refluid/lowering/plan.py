"""Plans: a block split into compiled pieces, host pieces and exchanges, with what each reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.prune import needed_operators
from refluid.ir.roles import OP_ROLE, OpRole
from refluid.lowering.folding import foldable_operators, known_before, reads_and_writes, static_reads, writers_behind
from refluid.lowering.host_ops import HostOps
from refluid.lowering.interpreter import Schedule, pair_gradients
from refluid.ops.core.registry import BOUNDARY


class Where(Enum):
    """How a piece runs."""

    COMPILED = "compiled"  # as one jitted function
    HOST = "host"  # one operator after the other
    EXCHANGE = "exchange"  # as one call of the runtime, which communicates with other processes


@dataclass(frozen=True)
class Piece:
    """Consecutive operators that run together."""

    schedule: Schedule
    where: Where
    reads: tuple[str, ...]  # names that must have a value before
    writes: tuple[str, ...]  # names that are needed afterwards

    @property
    def is_random(self) -> bool:
        return any(inner.definition.random for op in self.schedule.ops for inner in op.within())


@dataclass(frozen=True)
class Plan:
    """How one block runs for one set of feeds and fetches."""

    pieces: tuple[Piece, ...]
    reads: tuple[str, ...]  # names the block needs from feeds or the scope
    persists: tuple[str, ...]  # persistable names it writes


def make_plan(
    block: Block,
    fetches: Sequence[str],
    feeds: Sequence[str] | None = None,
    eager_loops: frozenset[int] = frozenset(),
    remote: frozenset[str] = frozenset(),
    padded: bool = True,
) -> Plan:
    """Plans the operators of ``block``; ``fetches`` must have a value at the end.

    With ``feeds``, operators that lead neither to a fetch nor to state are left out. Lookups in tables that are
    ``remote``, held by other processes, become exchanges. ``padded`` tells whether sequences may have padding rows.
    """
    ops = [op for op in block.ops if op.type not in BOUNDARY and not op.definition.makes_reader]
    if feeds is not None:
        ops = needed_operators(ops, {*fetches, *_persistable_writes(block, ops)}, frozenset(feeds))
    ops = _pushes_last(_remote_lookups_first(ops, remote))
    folded = foldable_operators(ops)
    pairs = pair_gradients(ops)
    groups = _group(ops, pairs, HostOps(eager_loops, padded).host_operators(ops, folded), remote)
    hosted = {id(op) for group, where in groups if where is Where.HOST for op in group}
    host_pairs = {gradient: forward for gradient, forward in pairs.items() if {gradient, forward} <= hosted}
    persists = _persistable_writes(block, ops)
    needed = set(fetches) | set(persists)
    pieces: list[Piece] = []
    for position in reversed(range(len(groups))):
        group, where = groups[position]
        if position and where is not Where.EXCHANGE:
            earlier = [op for before, _ in groups[:position] for op in before]
            group = [*_folded_before(group, earlier, folded), *group]
        reads, written = reads_and_writes(group)
        compiled = where is Where.COMPILED
        schedule = Schedule.of(group, folded) if compiled else Schedule(tuple(group), host_pairs, folded)
        pieces.append(Piece(schedule, where, tuple(reads), tuple(n for n in written if n in needed)))
        needed |= set(reads)
    reads, written = reads_and_writes(ops)
    reads = [*reads, *(name for name in dict.fromkeys(fetches) if name not in written and name not in reads)]
    return Plan(tuple(reversed(pieces)), tuple(reads), tuple(persists))


def _remote_lookups_first(ops: Sequence[Operator], remote: frozenset[str]) -> list[Operator]:
    """The operators, with those lookups in front that need nothing computed here: one exchange is enough for them."""
    read: set[str] = set()
    written: set[str] = set()
    first: list[Operator] = []
    others: list[Operator] = []
    for op in ops:
        outputs = set(op.output_arg_names)
        if looks_up(op, remote) and written.isdisjoint({*op.input_arg_names, *outputs}) and read.isdisjoint(outputs):
            first.append(op)
        else:
            others.append(op)
            read.update(name for inner in op.within() for name in inner.input_arg_names)
        written.update(name for inner in op.within() for name in inner.output_arg_names)
    return [*first, *others]


def _pushes_last(ops: Sequence[Operator]) -> list[Operator]:
    """The operators, with those that only send delayed until the next exchange, or until what they send is overwritten.

    Programs send gradients where they are ready; one exchange for all is faster.
    """
    read_here = {name for op in ops if not communicates(op) for inner in op.within() for name in inner.input_arg_names}
    ordered: list[Operator] = []
    delayed: list[Operator] = []
    sent: set[str] = set()
    for op in ops:
        if communicates(op) and read_here.isdisjoint(op.output_arg_names):
            delayed.append(op)
            sent.update(op.input_arg_names)
            continue
        if delayed and (communicates(op) or any(not sent.isdisjoint(each.output_arg_names) for each in op.within())):
            ordered += delayed
            delayed, sent = [], set()
        ordered.append(op)
    return ordered + delayed


def looks_up(op: Operator, remote: frozenset[str]) -> bool:
    """Whether an operator only takes rows of a table that other processes hold."""
    slot = op.definition.rows_of
    return slot is not None and not remote.isdisjoint(op.input(slot))


def _group(
    ops: Sequence[Operator], pairs: dict[int, int], on_host: set[int], remote: frozenset[str]
) -> list[tuple[list[Operator], Where]]:
    """Groups consecutive operators that run together."""
    while True:
        groups: list[tuple[list[Operator], Where]] = []
        for op in ops:
            exchanged = communicates(op) or looks_up(op, remote)
            where = Where.EXCHANGE if exchanged else Where.HOST if id(op) in on_host else Where.COMPILED
            if not groups or groups[-1][1] is not where:
                groups.append(([], where))
            groups[-1][0].append(op)
        torn = _torn_pairs(groups, pairs) - on_host
        if not torn:
            return groups
        on_host |= torn


def communicates(op: Operator) -> bool:
    """Whether an operator is part of an exchange with other processes, according to its role."""
    return bool(op.attrs.get(OP_ROLE, 0) & (OpRole.RPC | OpRole.Dist))


def _torn_pairs(groups: Sequence[tuple[list[Operator], Where]], pairs: dict[int, int]) -> set[int]:
    """Operators and their gradients in different pieces, if an input of the operator is overwritten in between.

    The gradient cannot be recomputed from overwritten inputs. Pullbacks last for a whole step on the host only.
    """
    ops = [op for group, _ in groups for op in group]
    piece_of = {id(op): position for position, (group, _) in enumerate(groups) for op in group}
    torn = {gradient: forward for gradient, forward in pairs.items() if piece_of[gradient] != piece_of[forward]}
    if not torn:
        return set()
    place = {id(op): i for i, op in enumerate(ops)}
    writes: dict[str, list[int]] = {}
    for i, op in enumerate(ops):
        for name in op.output_arg_names:
            writes.setdefault(name, []).append(i)

    def loses(gradient: int, forward: int) -> bool:
        op = ops[place[forward]]
        # Only control flow and writes to arrays need the values that they overwrite themselves.
        first = place[forward] + (0 if "run_block" in op.definition.services or op.definition.static else 1)
        return any(first <= i < place[gradient] for name in op.input_arg_names for i in writes.get(name, ()))

    return {op for pair in torn.items() if loses(*pair) for op in pair}


def _folded_before(group: Sequence[Operator], earlier: Sequence[Operator], folded: frozenset[int]) -> list[Operator]:
    """The constants of earlier pieces that determine shapes in this one: values passed between pieces are not constant.

    Names that become constant only later in the piece are not included.
    """
    wanted = static_reads(group) | {name for op in group if id(op) in folded for name in op.input_arg_names}
    wanted &= known_before([*earlier, group[0]], group[0])
    return writers_behind(wanted, [op for op in earlier if id(op) in folded])


def _persistable_writes(block: Block, ops: Sequence[Operator]) -> list[str]:
    names: dict[str, None] = {}
    for op in ops:
        for name in op.output_arg_names:
            variable = block.find_var_recursive(name)
            if variable is not None and variable.persistable:
                names[name] = None
    return list(names)
