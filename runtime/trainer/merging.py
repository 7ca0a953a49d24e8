"""Gradients of several steps merged into one push: decisions and arithmetic, no threads.

Merging happens as gradients arrive, so that waiting steps cost the memory of one, not of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from refluid.runtime.trainer.exchange_plan import Sliced
from refluid.runtime.transport.wire import Rows, Value


@dataclass
class Batch:
    """Gradients of one or more steps."""

    steps: int = 0
    values: dict[str, Value | list[Rows]] = field(default_factory=dict)
    _owned: set[str] = field(default_factory=set)  # sums in memory of ours, which may be added to in place

    def add(self, variables: Sequence[Sliced], values: Sequence[Value]) -> None:
        """Takes in the gradients of another step."""
        self.steps += 1
        for variable, value in zip(variables, values, strict=True):
            self._add(variable.name, value)

    def _add(self, name: str, value: Value) -> None:
        before = self.values.get(name)
        if isinstance(value, Rows):
            self.values[name] = [*(before or ()), value]  # pyright: ignore[reportGeneralTypeIssues]
        elif before is None:
            self.values[name] = value
        elif name in self._owned:
            assert isinstance(before, np.ndarray)
            before += value
        else:
            assert isinstance(before, np.ndarray)
            self.values[name] = before + value
            self._owned.add(name)

    def merged(self, variables: Sequence[Sliced]) -> list[tuple[Sliced, Value]]:
        """One gradient per variable: the sum of the steps' or their mean, as the variable has it."""
        return [(variable, self._merge(variable)) for variable in variables]

    def _merge(self, variable: Sliced) -> Value:
        value = self.values[variable.name]
        scale = 1.0 if variable.adds or self.steps == 1 else 1.0 / self.steps
        if isinstance(value, list):
            rows = value[0].rows if len(value) == 1 else np.concatenate([part.rows for part in value])
            values = value[0].values if len(value) == 1 else np.concatenate([part.values for part in value])
            return Rows(rows, values if scale == 1.0 else values * np.asarray(scale, values.dtype))
        assert isinstance(value, np.ndarray)
        return value if scale == 1.0 else value * np.asarray(scale, value.dtype)


class Waiting:
    """Steps that wait to be sent: batches of at most ``most_merged`` steps, at most ``most`` steps in all."""

    def __init__(self, most: int, most_merged: int):
        self._most, self._most_merged = most, most_merged
        self._batches: list[Batch] = []
        self.steps = 0

    @property
    def full(self) -> bool:
        """Whether another step has to wait outside."""
        return self.steps >= self._most

    def add(self, variables: Sequence[Sliced], values: Sequence[Value]) -> None:
        """A step joins the last batch, or begins one."""
        if not self._batches or self._batches[-1].steps >= self._most_merged:
            self._batches.append(Batch())
        self._batches[-1].add(variables, values)
        self.steps += 1

    def take(self) -> Batch:
        """The oldest batch."""
        batch = self._batches.pop(0)
        self.steps -= batch.steps
        return batch
