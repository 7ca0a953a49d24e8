"""Checks that rules request, such as ids in range.

Fed ids are checked on the host before the step, so that nothing has changed when the error is raised. Computed values
are checked by a boolean flag. A flag that depends on feeds only is computed before the step, by a `Guard`; any other
is computed inside the step, which keeps the old state if a flag is false. That costs a copy of the state, because the
old one is needed until the flag is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr
from jax.interpreters.partial_eval import dce_jaxpr

from refluid.backend import local_rows
from refluid.errors import OpError, OutOfRangeError
from refluid.ir.operator import Operator
from refluid.ops.core.checks import Check, RangeCheck, Requirement
from refluid.ops.core.values import plain


@dataclass
class Checks:
    """The checks of one compiled piece; filled while it is traced."""

    feeds: frozenset[str]
    on_feeds: dict[str, list[tuple[Operator, RangeCheck]]] = field(default_factory=dict)
    computed: list[tuple[Operator, Check]] = field(default_factory=list)
    _flags: list[Any] = field(default_factory=list)
    _sources: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def begin(self, ops: Sequence[Operator]) -> None:
        """Starts a trace and discards the results of an earlier one."""
        self.on_feeds.clear()
        self.computed.clear()
        self._flags.clear()
        self._sources = _feeds_behind(ops, self.feeds)

    def report(self, op: Operator, check: Check, values: Any) -> None:
        """Records a check; rules call it through the interpreter."""
        if isinstance(check, Requirement):
            if isinstance(values, Tracer):
                self._flag(op, check, values)
            elif not np.all(values):
                raise _unmet(op, check)
            return
        if not jnp.issubdtype(values.dtype, jnp.integer):
            return
        if not isinstance(values, Tracer):
            raise_if_out_of_range(op, check, np.asarray(values))
            return
        sources = self._sources.get(op.input(check.slot)[0]) if check.whole else None
        if sources is None:
            self._flag(op, check, values)
            return
        for feed in sources:
            if (op, check) not in self.on_feeds.setdefault(feed, []):
                self.on_feeds[feed].append((op, check))

    def _flag(self, op: Operator, check: Check, values: Any) -> None:
        self.computed.append((op, check))
        self._flags.append(check.holds(values))

    def flags(self) -> list[Any]:
        """Returns one boolean for each computed check."""
        return list(self._flags)

    def check_feeds(self, values: Sequence[Any], positions: Mapping[str, int]) -> None:
        """Raises if a fed array has an id out of range; ``positions`` gives the index of each feed in ``values``."""
        for name, checks in self.on_feeds.items():
            array = local_rows(plain(values[positions[name]]))
            if not array.size or array.dtype.kind not in "iu":
                continue
            # These two cost a fraction of max() and min(), which matters for a batch of labels.
            smallest, largest = array.item(array.argmin()), array.item(array.argmax())
            for op, check in checks:
                if smallest < 0 or largest >= check.bound:
                    raise_if_out_of_range(op, check, array)

    def check_flags(self, flags: Sequence[Any], numbers: Sequence[int]) -> None:
        """Raises if one of the computed checks with these numbers failed."""
        for number, flag in zip(numbers, flags, strict=True):
            if not flag:
                op, check = self.computed[number]
                raise _unmet(op, check) if isinstance(check, Requirement) else _error(op, check, "a computed id")


@dataclass(frozen=True)
class Guard:
    """The computed checks that follow from feeds alone, as a function to call before the step."""

    numbers: tuple[int, ...]
    _function: Callable[..., list[Any]]
    _places: tuple[int, ...]  # the leaves among the step's arguments that it reads

    @classmethod
    def of(cls, traced: Any, count: int, fed: Sequence[bool]) -> Guard:
        """Extracts the guard from a traced step whose last ``count`` results are flags.

        Args:
          fed: for each leaf of the step's arguments, whether it belongs to a feed.
        """
        closed = traced.jaxpr
        results = len(closed.jaxpr.outvars)

        def needs_only_feeds(number: int) -> bool:
            _, used = dce_jaxpr(closed.jaxpr, [i == results - count + number for i in range(results)])
            return all(is_fed for is_fed, is_used in zip(fed, used, strict=True) if is_used)

        numbers = tuple(filter(needs_only_feeds, range(count)))
        wanted = [i - (results - count) in numbers for i in range(results)]
        jaxpr, used = dce_jaxpr(closed.jaxpr, wanted)
        function = jax.jit(lambda *leaves: eval_jaxpr(jaxpr, closed.consts, *leaves))
        return cls(numbers, function, tuple(i for i, is_used in enumerate(used) if is_used))

    def __call__(self, *arguments: Any) -> list[Any]:
        """Computes the flags from the step's arguments."""
        leaves = jax.tree.leaves(arguments)
        return self._function(*(leaves[i] for i in self._places))


def raise_if_out_of_range(op: Operator, check: RangeCheck, ids: np.ndarray) -> None:
    """Raises an error that names the first id out of range, if any."""
    bad = (ids < 0) | (ids >= check.bound)
    if check.ignore is not None:
        bad &= ids != check.ignore
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise _error(op, check, f"id {ids[place]} at {[int(i) for i in place]}")


def _unmet(op: Operator, check: Requirement) -> OpError:
    return op.error(check.problem, "nothing was updated")


def _error(op: Operator, check: RangeCheck, what: str) -> OutOfRangeError:
    plain = op.error(f"{what} of {check.slot} ({op.input(check.slot)[0]}) is not in [0, {check.bound})")
    exempt = "" if check.ignore is None else f" (or {check.ignore}, which is ignored)"
    hint = f"ids must be at least 0 and less than {check.bound}{exempt}; nothing was updated"
    return OutOfRangeError(plain.op_type, plain.problem, plain.arguments, plain.attrs, plain.written_at, hint)


def _feeds_behind(ops: Sequence[Operator], feeds: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Maps each variable that holds only moved fed values to those feeds."""
    sources: dict[str, tuple[str, ...]] = {name: (name,) for name in feeds}
    for op in ops:
        moved = [sources.get(name) for name in op.input_arg_names]
        known = op.definition.keeps_values(op.attrs) and bool(moved) and all(found is not None for found in moved)
        for name in op.output_arg_names:
            if known:
                sources[name] = tuple(dict.fromkeys(feed for found in moved for feed in found or ()))
            else:
                sources.pop(name, None)
    return sources
