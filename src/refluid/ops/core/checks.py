"""Checks that rules make on values: ids and labels within range, lengths that fit.

XLA clamps an out-of-range index; Fluid raises. A rule states its requirements with `require_in_range` and `require`.
The caller of the rule installs a `Collector`, which decides how to check them: on the host before the step if the ids
are fed, as a flag if they are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp


@dataclass(frozen=True)
class RangeCheck:
    """The values of input ``slot`` must be in [0, bound), or equal to ``ignore``."""

    slot: str
    bound: int
    ignore: int | None = None
    whole: bool = True  # whether it covers all values of the slot, not just a part that the rule extracted

    def holds(self, ids: Any) -> Any:
        """A boolean scalar: whether every id passes."""
        fine = (ids >= 0) & (ids < self.bound)
        if self.ignore is not None:
            fine |= ids == self.ignore
        return jnp.all(fine)


@dataclass(frozen=True)
class Requirement:
    """A condition on values; ``problem`` is the error message if it does not hold."""

    problem: str

    def holds(self, condition: Any) -> Any:
        """A boolean scalar: whether the condition holds everywhere."""
        return jnp.all(condition)


Check = RangeCheck | Requirement


# Receives the checks of the rule being run, with the values to check.
Collector = Callable[[Check, Any], None]

_collector: ContextVar[Collector | None] = ContextVar("collector", default=None)


@contextmanager
def collecting(collector: Collector):
    """Sends the checks made inside to ``collector``."""
    token = _collector.set(collector)
    try:
        yield
    finally:
        _collector.reset(token)


def require_in_range(ids: Any, bound: int, *, slot: str, ignore: int | None = None, whole: bool = True) -> None:
    """Requires every value of ``ids``, an input from ``slot``, to be in [0, bound) or equal to ``ignore``.

    Call it at the top of a rule, on the unmodified input, not inside jitted or differentiated helpers. If the bound
    applies to only part of the input, such as a column, pass that part with ``whole=False``.
    """
    collector = _collector.get()
    if collector is not None:
        collector(RangeCheck(slot, int(bound), ignore, whole), ids)


def require(condition: Any, problem: str) -> None:
    """Requires ``condition``, a boolean array computed from the inputs, to be true everywhere.

    The restrictions of `require_in_range` apply. If shapes alone show the problem, raise directly.
    """
    collector = _collector.get()
    if collector is not None:
        collector(Requirement(problem), condition)
