"""State that replicas share out: each holds some of its rows, and updates only these.

Optimizers whose op works row by row get the rows of the replica: of the state it holds, of the parameter and of the
gradient. Any other operator gets all rows, gathered where it needs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax import lax

from refluid.ir.operator import Operator
from refluid.ops.core import replicas
from refluid.ops.core.replicas import AXIS

Arguments = dict[str, list[Any]]


@dataclass(frozen=True)
class Sharded:
    """The rows of a variable that this replica holds."""

    own: Any

    @property
    def dtype(self) -> Any:
        return self.own.dtype

    @property
    def rows(self) -> int:
        """How many rows all replicas have together."""
        return self.own.shape[0] * replicas.count()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, *self.own.shape[1:])

    def whole(self) -> Any:
        """The rows of all replicas."""
        return lax.all_gather(self.own, AXIS, tiled=True)


def own_rows(value: Any) -> Any:
    """The rows of a replicated array that belong to this replica."""
    share = value.shape[0] // replicas.count()
    return lax.dynamic_slice_in_dim(value, replicas.index() * share, share)


def settled(value: Any, is_sharded: bool) -> Any:
    """A value after a step, in the form that the state has."""
    if isinstance(value, Sharded):
        return value.own if is_sharded else value.whole()
    return own_rows(value) if is_sharded and value is not None else value


def whole(arguments: Arguments) -> Arguments:
    """The arguments with all rows of what replicas share out."""
    return {slot: [v.whole() if isinstance(v, Sharded) else v for v in values] for slot, values in arguments.items()}


def rows_to_update(op: Operator, arguments: Arguments) -> int | None:
    """How many rows an operator updates of which each replica can update its own; None if it must see all of them."""
    if op.definition.slices != "rows":
        return None
    values = [value for each in arguments.values() for value in each]
    found = {value.rows for value in values if isinstance(value, Sharded)}
    plain = all(isinstance(value, Sharded | jax.Array) or value is None for value in values)
    return found.pop() if plain and len(found) == 1 else None


def own(arguments: Arguments, rows: int) -> Arguments:
    """The arguments with the rows of this replica, of everything that has as many rows."""
    return {slot: [_own(value, rows) for value in values] for slot, values in arguments.items()}


def _own(value: Any, rows: int) -> Any:
    if isinstance(value, Sharded):
        return value.own
    return own_rows(value) if value is not None and value.ndim and value.shape[0] == rows else value


def as_sharded(outputs: Arguments, rows: int) -> Arguments:
    """The outputs, of which those with a share of the rows are shared out."""
    share = rows // replicas.count()

    def wrapped(value: Any) -> Any:
        return Sharded(value) if value is not None and value.ndim and value.shape[0] == share else value

    return {slot: [wrapped(value) for value in values] for slot, values in outputs.items()}
