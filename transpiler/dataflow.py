"""What operators read and write, sub-blocks included, and which of them lead to a value."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from refluid.ir import Operator


def reads(op: Operator) -> set[str]:
    """The names an operator, or one in the blocks it runs, reads."""
    return {name for inner in op.within() for name in inner.input_arg_names}


def writes(op: Operator) -> set[str]:
    """The names an operator, or one in the blocks it runs, writes."""
    return {name for inner in op.within() for name in inner.output_arg_names}


def behind(wanted: Collection[str], ops: Sequence[Operator]) -> list[Operator]:
    """The operators that write ``wanted`` names, those that write what these read, and so on, in order.

    Where they stand does not matter: what a later one writes may be state that the next step reads.
    """
    wanted, found, size = set(wanted), [], -1
    while len(found) != size:
        size = len(found)
        found = [op for op in ops if writes(op) & wanted]
        for op in found:
            wanted |= reads(op)
    return found


def before(op: Operator, ops: Sequence[Operator]) -> list[Operator]:
    """The operators that stand before ``op`` and lead to what it reads, in order."""
    wanted, found = reads(op), []
    for earlier in reversed(ops[: position(op, ops)]):
        if writes(earlier) & wanted:
            found.append(earlier)
            wanted |= reads(earlier)
    return found[::-1]


def position(op: Operator, ops: Sequence[Operator]) -> int:
    return next(place for place, each in enumerate(ops) if each is op)
