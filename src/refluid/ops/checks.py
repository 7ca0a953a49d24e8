"""Range checks of ids and labels.

XLA clamps an index that is out of range; Fluid raises. A rule states what it needs with `require_in_range`; whoever
runs the rule installs a `Collector` that decides how the check is carried out: on the host, before the step, where the
ids are fed; as a flag computed inside the step where they are not.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

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


class Collector(Protocol):
    """Receives the checks of the rule being run, with the values they are about."""

    def __call__(self, check: RangeCheck, ids: Any) -> None: ...


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
