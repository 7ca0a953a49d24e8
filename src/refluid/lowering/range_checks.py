"""Carrying out the range checks that rules ask for.

Ids that are fed are checked on the host before the step, so that nothing has changed when the error is raised. Ids that
the program computes are checked by a flag inside the step; where it is down, the step leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from refluid.errors import OutOfRangeError
from refluid.ir.operator import Operator
from refluid.ops.checks import RangeCheck
from refluid.ops.values import plain

# Ops that only move values around: a check on their output is a check on their input.
_MOVES = frozenset(
    """assign cast concat flatten flatten2 reshape reshape2 squeeze squeeze2 stack transpose transpose2
    unsqueeze unsqueeze2""".split()
)


@dataclass
class RangeChecks:
    """The checks of one compiled piece; filled while it is traced."""

    feeds: frozenset[str]
    on_feeds: dict[str, list[tuple[Operator, RangeCheck]]] = field(default_factory=dict)
    in_step: list[tuple[Operator, RangeCheck]] = field(default_factory=list)
    _flags: list[Any] = field(default_factory=list)
    _sources: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def begin(self, ops: Sequence[Operator]) -> None:
        """Starts a trace: forgets what an earlier one found."""
        self.on_feeds.clear()
        self.in_step.clear()
        self._flags.clear()
        self._sources = _feeds_behind(ops, self.feeds)

    def report(self, op: Operator, check: RangeCheck, ids: Any) -> None:
        """Called by rules, through the interpreter."""
        if not jnp.issubdtype(ids.dtype, jnp.integer):
            return
        if not isinstance(ids, Tracer):
            raise_if_out_of_range(op, check, np.asarray(ids))
            return
        sources = self._sources.get(op.input(check.slot)[0]) if check.whole else None
        if sources is None:
            self.in_step.append((op, check))
            self._flags.append(check.holds(ids))
            return
        for feed in sources:
            if (op, check) not in self.on_feeds.setdefault(feed, []):
                self.on_feeds[feed].append((op, check))

    def flags(self) -> Any:
        """One boolean per check that is made inside the step, or None."""
        return jnp.stack(self._flags) if self._flags else None

    def check_feed(self, name: str, value: Any) -> None:
        """Raises if a fed array has an id out of range."""
        checks = self.on_feeds.get(name)
        if checks is None:
            return
        array = np.asarray(plain(value))
        if not array.size or array.dtype.kind not in "iu":
            return
        # Seen as unsigned, a negative id is a huge one: one pass finds both kinds.
        largest = int(np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").max())
        for op, check in checks:
            if largest >= check.bound:
                raise_if_out_of_range(op, check, array)

    def check_flags(self, flags: Any) -> None:
        """Raises if a check inside the step failed."""
        good = np.asarray(flags)
        if not good.all():
            op, check = self.in_step[int(np.argmin(good))]
            raise _error(op, check, "a computed id")


def raise_if_out_of_range(op: Operator, check: RangeCheck, ids: np.ndarray) -> None:
    """Raises the error that names the first id out of range, if there is one."""
    bad = (ids < 0) | (ids >= check.bound)
    if check.ignore is not None:
        bad &= ids != check.ignore
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise _error(op, check, f"id {ids[place]} at {[int(i) for i in place]}")


def _error(op: Operator, check: RangeCheck, what: str) -> OutOfRangeError:
    plain = op.error(f"{what} of {check.slot} ({op.input(check.slot)[0]}) is not in [0, {check.bound})")
    exempt = "" if check.ignore is None else f" (or {check.ignore}, which is ignored)"
    hint = f"ids must be at least 0 and less than {check.bound}{exempt}; nothing was updated"
    return OutOfRangeError(plain.op_type, plain.problem, plain.arguments, plain.attrs, plain.written_at, hint)


def _feeds_behind(ops: Sequence[Operator], feeds: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """For each variable that only moves fed values around, the feeds behind it."""
    sources: dict[str, tuple[str, ...]] = {name: (name,) for name in feeds}
    for op in ops:
        moved = [sources.get(name) for name in op.input_arg_names]
        known = op.type in _MOVES and bool(moved) and all(found is not None for found in moved)
        for name in op.output_arg_names:
            if known:
                sources[name] = tuple(dict.fromkeys(feed for found in moved for feed in found or ()))
            else:
                sources.pop(name, None)
    return sources
