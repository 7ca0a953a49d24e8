"""Conditions under which an op works row by row, so that padding rows are harmless; values for ``row_wise=``.

Each is called with the op's attributes and its arguments (slot -> values); sequences are `Ragged`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refluid.ops.core.values import Ragged

Arguments = dict[str, list[Any]]
Condition = Callable[[dict[str, Any], Arguments], bool]


def sequences_only_in(*slots: str) -> Condition:
    """Sequences occur only in ``slots``; every row uses the other inputs as a whole."""

    def holds(attrs: dict[str, Any], arguments: Arguments) -> bool:
        return not any(
            isinstance(value, Ragged) for slot, values in arguments.items() if slot not in slots for value in values
        )

    return holds


def not_along_rows(name: str, default: int | Sequence[int] = -1, slot: str = "X") -> Condition:
    """Attribute ``name``, an axis or a list of axes, does not include the first axis."""

    def holds(attrs: dict[str, Any], arguments: Arguments) -> bool:
        axes = attrs.get(name, default)
        rank = arguments[slot][0].ndim
        return all(axis % rank for axis in (axes if isinstance(axes, list | tuple) else (axes,)))

    return holds


def has_columns(slot: str = "X") -> Condition:
    """Ops on the last dim work row by row unless it is the only dim."""

    def holds(attrs: dict[str, Any], arguments: Arguments) -> bool:
        return arguments[slot][0].ndim > 1

    return holds


def as_many_rows(shape: Callable[[Sequence[int], dict[str, Any]], Sequence[int]], *tensors: str) -> Condition:
    """``shape(x_shape, attrs)`` keeps the first dim, and none of the input slots ``tensors`` overrides it."""

    def holds(attrs: dict[str, Any], arguments: Arguments) -> bool:
        if any(arguments.get(slot) for slot in tensors):
            return False
        x = arguments["X"][0].shape
        return tuple(shape(x, attrs))[:1] == (x[0],)

    return holds


def broadcast_along_rows(attrs: dict[str, Any], arguments: Arguments) -> bool:
    """Rows of sequences stay rows: the operand with fewer dims is not a sequence aligned to an inner dim."""
    (x,), (y,) = arguments["X"], arguments["Y"]
    if attrs.get("axis", -1) == 0 or x.ndim == y.ndim:
        return True
    return not isinstance(x if x.ndim < y.ndim else y, Ragged)
