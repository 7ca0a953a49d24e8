"""What rules require of values: ids and labels within range, lengths that fit.

XLA clamps an index that is out of range; Fluid raises. A rule states what it needs with `require_in_range` and
`require`; whoever runs the rule installs a `Collector` that decides how the check is carried out: on the host, before
the step, where the ids are fed; as a flag where they are computed.
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
    whole: bool = True  # whether it is about all values of the slot, rather than about a part that the rule took out

    def holds(self, ids: Any) -> Any:
        """A boolean scalar: whether every id passes."""
        fine = (ids >= 0) & (ids < self.bound)
        if self.ignore is not None:
            fine |= ids == self.ignore
        return jnp.all(fine)


@dataclass(frozen=True)
class Requirement:
    """A condition on values; ``problem`` says what is wrong where it does not hold."""

    problem: str

    def holds(self, condition: Any) -> Any:
        """A boolean scalar: whether the condition holds everywhere."""
        return jnp.all(condition)


Check = RangeCheck | Requirement


# Receives the checks of the rule being run, with the values they are about.
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
    """States that every value of ``ids``, which came in through ``slot``, is in [0, bound) or is ``ignore``.

    Call it at the top of a rule, on the input as it came in, not inside jitted or differentiated helpers. Where the
    bound holds for a part of the input only, such as a column, pass that part and ``whole=False``.
    """
    collector = _collector.get()
    if collector is not None:
        collector(RangeCheck(slot, int(bound), ignore, whole), ids)


def require(condition: Any, problem: str) -> None:
    """States that ``condition``, an array of booleans computed from the inputs, is true everywhere.

    Call it where `require_in_range` may be called. What is known from shapes alone is better raised at once.
    """
    collector = _collector.get()
    if collector is not None:
        collector(Requirement(problem), condition)
