"""Gradients of several steps merged into one push: decisions and arithmetic, no threads and no network.

Merging happens as gradients arrive, so that queued steps take the memory of one step, not of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from refluid.runtime.tables.batches import merged
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.packing import Versions
from refluid.runtime.transport.wire import Rows, Value


@dataclass
class MergedSteps:
    """Gradients of one or more steps."""

    steps: int = 0
    seen: Versions = field(default_factory=dict)  # of the parameters that the first of them used
    values: dict[str, Value | list[Rows]] = field(default_factory=dict)
    _owned: set[str] = field(default_factory=set)  # sums in memory of our own, which may be added to in place

    def add(self, variables: Sequence[SlicedVariable], values: Sequence[Value], seen: Versions) -> None:
        """Adds the gradients of another step, computed with parameters of these versions."""
        if not self.steps:
            self.seen = dict(seen)
        self.steps += 1
        for variable, value in zip(variables, values, strict=True):
            self._add(variable.name, value)

    def _add(self, name: str, value: Value) -> None:
        before = self.values.get(name)
        if isinstance(value, Rows):
            assert before is None or isinstance(before, list)
            self.values[name] = [*(before or ()), value]
        elif before is None:
            self.values[name] = value
        elif name in self._owned:
            assert isinstance(before, np.ndarray)
            before += value
        else:
            assert isinstance(before, np.ndarray)
            self.values[name] = before + value
            self._owned.add(name)

    def merged(self, variables: Sequence[SlicedVariable]) -> list[tuple[SlicedVariable, Value]]:
        """One gradient per variable: the sum over the steps, or their mean, as the variable says."""
        return [(variable, self._merge(variable)) for variable in variables]

    def _merge(self, variable: SlicedVariable) -> Value:
        value = self.values[variable.name]
        scale = 1.0 if variable.adds or self.steps == 1 else 1.0 / self.steps
        if isinstance(value, list):
            rows, values = value[0].rows, value[0].values
            if len(value) > 1:
                rows, values = merged(
                    *(np.concatenate(parts) for parts in zip(*((p.rows, p.values) for p in value), strict=True))
                )
            return Rows(rows, values if scale == 1.0 else values * np.asarray(scale, values.dtype))
        assert isinstance(value, np.ndarray)
        return value if scale == 1.0 else value * np.asarray(scale, value.dtype)


class MergeQueue:
    """Steps that wait to be sent, merged up to ``max_merged`` at a time; None for all of them."""

    def __init__(self, max_merged: int | None):
        self._max_merged = max_merged
        self._queue: list[MergedSteps] = []
        self.steps = 0

    def add(
        self, variables: Sequence[SlicedVariable], values: Sequence[Value], seen: Versions, *, apart: bool = False
    ) -> None:
        """Merges a step into the last entry of the queue, or appends it; ``apart`` always does."""
        if apart or not self._queue or self._queue[-1].steps == self._max_merged:
            self._queue.append(MergedSteps())
        self._queue[-1].add(variables, values, seen)
        self.steps += 1

    def take(self) -> MergedSteps:
        """Removes and returns the oldest entry."""
        merged = self._queue.pop(0)
        self.steps -= merged.steps
        return merged
