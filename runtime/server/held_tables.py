"""The tables of one server: which of its variables they are, what is pushed to them, and how they are updated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.ir.block import Block
from refluid.ir.slices import Slice
from refluid.ir.vartype import as_numpy
from refluid.runtime.server.table_updates import TableUpdate
from refluid.runtime.tables.batches import merged
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.table import Table
from refluid.runtime.transport.wire import Rows, Value
from refluid.scope import Scope
from refluid.tensors import RemoteArray


class HeldTable:
    """A table, or the slice of one, as a server holds it.

    Args:
      update: how it is updated.
      main: the block with the server's variables.
      scope: holds the values that it begins with; afterwards, what the table holds can be read there.
      part: what it is a slice of.
    """

    def __init__(self, update: TableUpdate, main: Block, scope: Scope, part: Slice):
        self.update, self.part = update, part
        variable = main.var(update.param)
        self._states = dict(update.states)
        slots = tuple(self._states)
        width = int(np.prod(variable.shape[1:]))
        form = RecordForm(width, np.dtype(as_numpy(variable.dtype)), slots, has_id=False)
        self.table = Table(update.param, form, update.rule, fixed=(0, part.rows))
        self._shape = (part.rows, *variable.shape[1:])
        self._take(scope)

    # Variables

    def _take(self, scope: Scope) -> None:
        """Moves values from the scope into the table."""
        weights = _held(scope, self.update.param)
        slots = {slot: _held(scope, name) for slot, name in self._states.items()}
        self.table.set_all(weights.reshape(len(weights), -1), {k: v.reshape(len(v), -1) for k, v in slots.items()})
        powers = {slot: _held(scope, name) for slot, name in self.update.powers.items()}
        if powers:
            beta = float(np.float32(self.update.rule.attrs.get("beta1", 0.9)))
            power = float(powers["Beta1Pow"].reshape(-1)[0])
            # Powers count steps: they begin with beta, and are multiplied by it in every step.
            self.table.step = max(0, round(np.log(power) / np.log(beta)) - 1) if 0 < power < 1 else 0
            self.table.start_all_at(self.table.step)
        for name in self.variables:
            scope.hold_remotely(name, _TableArray(self, name))

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it holds."""
        return self.update.param, *self._states.values(), *self.update.powers.values()

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of one of its variables."""
        return (1,) if name in self.update.powers.values() else self._shape

    def read(self, name: str) -> np.ndarray:
        """The value of one of its variables: weights, a state of the optimizer, a power."""
        if name == self.update.param:
            return self.table.weights(0, self.part.rows).reshape(self._shape)
        for slot, power in self.update.powers.items():
            if name == power:
                beta = np.float32(self.update.rule.attrs.get("beta1" if slot == "Beta1Pow" else "beta2", 0.9))
                return np.full(1, float(beta) ** (self.table.step + 1), self.table.form.dtype)
        slot = next(slot for slot, state in self._states.items() if state == name)
        return self.table.slot(slot).reshape(self._shape)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """The weights of some rows, counted from the first one of the slice."""
        if ids.size and (ids.min() < 0 or ids.max() >= self.part.rows):
            bad = ids[(ids < 0) | (ids >= self.part.rows)][0]
            raise IndexError(
                f"row {bad} of {self.update.param} was requested; on this server it has {self.part.rows} rows"
            )
        return self.table.read(ids).reshape(len(ids), *self._shape[1:])

    def write(self, value: np.ndarray) -> None:
        """Replaces the weights."""
        self.table.set_weights(0, value.reshape(self.part.rows, -1))

    # Updates

    def gather(self, pushes: Sequence[Mapping[str, Value]]) -> tuple[np.ndarray, np.ndarray]:
        """Different ids, and the sums of the gradients that were pushed for each."""
        given = [push[self.update.pushed] for push in pushes if self.update.pushed in push]
        rows = [value for value in given if isinstance(value, Rows)]
        ids = np.concatenate([value.rows for value in rows]) if rows else np.empty(0, np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= self.part.rows):
            raise IndexError(f"a row of {self.update.param} was pushed that this server does not have")
        width = self.table.form.width
        values = [value.values.reshape(len(value.rows), width) for value in rows]
        return merged(ids, np.concatenate(values) if values else np.empty((0, width), self.table.form.dtype))

    def squares(self, grads: np.ndarray, scale: float) -> np.ndarray:
        """The sum of the squares of averaged gradients."""
        return np.full(1, scale * scale * float(np.vdot(grads, grads)), self.table.form.dtype)

    def apply(self, ids: np.ndarray, grads: np.ndarray, rate: float, scale: float) -> None:
        """Updates rows; ``scale`` is what gradients are multiplied by."""
        self.table.update(ids, grads, self.table.begin_step(rate), scale)


class _TableArray(RemoteArray):
    """A variable that a table holds, in the scope of its server."""

    def __init__(self, held: HeldTable, name: str):
        super().__init__(name, held.shape_of(name), held.table.form.dtype)
        self._held = held

    def read(self) -> np.ndarray:
        return self._held.read(self.name)

    def read_rows(self, rows: np.ndarray | range) -> np.ndarray:
        return self.read()[np.asarray(rows)]

    def where(self) -> str:
        return "this server"

    def check_writable(self, written: str) -> None:
        raise RuntimeError(f"{self.name} is a table of a running server; {written} would not reach its rows")


def _held(scope: Scope, name: str) -> np.ndarray:
    held: Any = scope.find_var(name)
    if held is None or held.value is None:
        raise KeyError(f"variable {name} has no value on this server; was its startup program run?")
    return np.asarray(held.value)
