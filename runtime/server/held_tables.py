"""The tables of one server: which of its variables they are, what is pushed to them, and how they are updated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refluid.ir.slices import Slice
from refluid.ir.table_options import TableOptions
from refluid.ir.vartype import as_numpy
from refluid.runtime.server.saved_tables import held_rows, held_table
from refluid.runtime.server.table_life import Life
from refluid.runtime.server.table_updates import TableUpdate
from refluid.runtime.tables.batches import merged
from refluid.runtime.tables.files.loading import load_into, load_rows
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Beginning
from refluid.runtime.tables.table import Table
from refluid.runtime.transport.wire import Rows, Value
from refluid.scope import Scope
from refluid.tensors import RemoteArray


class HeldTable(ABC):
    """A table, or the slice of one, as a server holds it: what is pushed to it, and how it is updated.

    Attributes:
      update: how it is updated.
      part: what it is a slice of.
    """

    table: Table

    def __init__(self, update: TableUpdate, part: Slice):
        self.update, self.part = update, part
        self._states = dict(update.states)
        self._shape = part.shape

    def _form(self, dtype: Any, **options: Any) -> RecordForm:
        width = math.prod(self.part.whole_shape[1:])
        return RecordForm(width, np.dtype(as_numpy(dtype)), tuple(self._states), **options)

    # Variables

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it holds."""
        return self.update.param, *self._states.values(), *self.update.powers.values()

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of one of its variables."""
        return (1,) if name in self.update.powers.values() else self._shape

    def read(self, name: str) -> np.ndarray:
        """The value of one of its variables: weights, a state of the optimizer, a power."""
        for slot, power in self.update.powers.items():
            if name == power:
                beta = np.float32(self.update.rule.attrs.get("beta1" if slot == "Beta1Pow" else "beta2", 0.9))
                return np.full(1, float(beta) ** (self.table.step + 1), self.table.form.dtype)
        return self._read_rows(name)

    @abstractmethod
    def _read_rows(self, name: str) -> np.ndarray:
        """Weights, or a state, of all rows."""

    def look_up(self, ids: np.ndarray) -> np.ndarray:
        """The weights of some rows."""
        self._check(ids, "requested")
        found = self.table.read(ids, creates=False)
        return found.reshape(len(ids), *self._shape[1:])

    @abstractmethod
    def write(self, value: np.ndarray) -> None:
        """Replaces the weights."""

    @abstractmethod
    def _check(self, ids: np.ndarray, what: str) -> None:
        """Raises an IndexError unless rows of these ids can be here."""

    def _start_at_powers(self, scope: Scope) -> None:
        """Takes the number of steps from powers: they begin with beta, and are multiplied by it in every step."""
        if self.update.powers:
            beta = float(np.float32(self.update.rule.attrs.get("beta1", 0.9)))
            power = float(_held(scope, self.update.powers["Beta1Pow"]).reshape(-1)[0])
            self.table.step = max(0, round(np.log(power) / np.log(beta)) - 1) if 0 < power < 1 else 0

    def _show_in(self, scope: Scope) -> None:
        for name in self.variables:
            scope.hold_remotely(name, _TableArray(self, name))

    # Updates

    def gather(self, pushes: Sequence[Mapping[str, Value]]) -> tuple[np.ndarray, np.ndarray]:
        """Different ids, and the sums of the gradients that were pushed for each."""
        given = [push[self.update.pushed] for push in pushes if self.update.pushed in push]
        rows, form = [value for value in given if isinstance(value, Rows)], self.table.form
        for value in rows:
            self._check(value.rows, "pushed")
        values = [value.values.reshape(len(value.rows), form.width).astype(form.dtype, copy=False) for value in rows]
        if len(rows) == 1:
            return merged(rows[0].rows, values[0])
        ids = np.concatenate([value.rows for value in rows]) if rows else np.empty(0, np.int64)
        return merged(ids, np.concatenate(values) if values else np.empty((0, form.width), form.dtype))

    def squares(self, grads: np.ndarray, scale: float) -> np.ndarray:
        """The sum of the squares of averaged gradients."""
        return np.full(1, scale * scale * float(np.vdot(grads, grads)), self.table.form.dtype)

    def apply(self, ids: np.ndarray, grads: np.ndarray, rate: float, scale: float) -> None:
        """Updates rows; ``scale`` is what gradients are multiplied by."""
        self.table.update(ids, grads, self.table.begin_step(rate), scale)


class FixedTable(HeldTable):
    """A slice of a table with a number of rows, which are counted from the first one of the slice.

    Args:
      scope: holds the values that it begins with; afterwards, what the table holds can be read there.
    """

    def __init__(self, update: TableUpdate, part: Slice, dtype: Any, scope: Scope):
        super().__init__(update, part)
        self.table = Table(update.param, self._form(dtype, has_id=False), update.rule, fixed=(0, part.rows))
        weights = _held(scope, update.param)
        slots = {slot: _held(scope, name) for slot, name in self._states.items()}
        self.table.set_all(weights.reshape(len(weights), -1), {k: v.reshape(len(v), -1) for k, v in slots.items()})
        self._start_at_powers(scope)
        self.table.start_all_at(self.table.step)
        self._show_in(scope)

    def _read_rows(self, name: str) -> np.ndarray:
        if name == self.update.param:
            return self.table.weights(0, self.part.rows).reshape(self._shape)
        slot = next(slot for slot, state in self._states.items() if state == name)
        return self.table.slot(slot).reshape(self._shape)

    def write(self, value: np.ndarray) -> None:
        self.table.set_weights(0, value.reshape(self.part.rows, -1))

    def _check(self, ids: np.ndarray, what: str) -> None:
        if ids.size and np.maximum.reduce(ids.view(np.uint64)) >= self.part.rows:  # negative ones are very large
            bad = ids[(ids < 0) | (ids >= self.part.rows)][0]
            raise IndexError(
                f"row {bad} of {self.update.param} was {what}; on this server it has {self.part.rows} rows"
            )


class GrowingTable(HeldTable):
    """The rows of some shards of a table that grows.

    Args:
      scope: holds, as numbers, how rows and the states of the optimizer begin.
      options: its options; ``life`` applies them.
    """

    def __init__(self, update: TableUpdate, part: Slice, dtype: Any, scope: Scope, options: TableOptions):
        super().__init__(update, part)
        fills = [Beginning.read(_held(scope, name)).first for name in self._states.values()]
        begins, saved = Beginning.read(_held(scope, update.param)), held_table(scope, update.param)
        if saved is not None:
            begins = begins.with_key_of(Beginning.read(np.array(saved.manifest.beginning)))
        form = self._form(dtype, has_id=True, precision=options.precision)
        self.table = Table(update.param, form, update.rule, begins, fills)
        self.life = Life(self.table, options, part.endpoint)
        self._wire = None if options.wire == "native" else np.dtype(options.wire)
        self._start_at_powers(scope)
        if saved is not None:
            load_into(self.table, saved, (part.start, part.end))
        else:
            rows = held_rows(scope, update.param, self.table.form.width, self._states)
            load_rows(self.table, rows, (part.start, part.end))
        self._show_in(scope)

    @property
    def states(self) -> dict[str, str]:
        """The whole variables of the optimizer's states, by slot."""
        suffix = self.update.param.removeprefix(self.part.whole)
        return {slot: name.removesuffix(suffix) for slot, name in self._states.items()}

    def describe(self) -> dict[str, Any]:
        """What it holds, for trainers that save and for people."""
        lowest, highest = self.table.id_range()
        table = self.table
        return {"rows": len(table), "bytes": table.bytes, "step": table.step, "lowest": lowest, "highest": highest}

    def look_up(self, ids: np.ndarray) -> np.ndarray:
        found = super().look_up(ids)
        return found if self._wire is None else found.astype(self._wire)

    # What metrics show

    @property
    def name(self) -> str:
        """The name of the whole table."""
        return self.part.whole

    @property
    def rows(self) -> int:
        """How many rows it has on this server."""
        return len(self.table)

    @property
    def bytes(self) -> int:
        """The memory it takes on this server."""
        return self.table.bytes

    @property
    def budget(self) -> int:
        """The memory it may take; 0 for any."""
        return self.life.options.budget

    @property
    def most_rows(self) -> int | None:
        """How many rows the budget is enough for; None for any."""
        return self.life.most_rows

    @property
    def evicted(self) -> int:
        """How many rows were given up."""
        return self.life.evicted

    # Updates

    def check_room(self, ids: np.ndarray) -> None:
        """Raises a ValueError if there may not be as many rows as an update of these ids would add."""
        self.life.check_room(ids)

    def apply(self, ids: np.ndarray, grads: np.ndarray, rate: float, scale: float) -> None:
        super().apply(ids, grads, rate, scale)
        self.life.after_update()

    def _read_rows(self, name: str) -> np.ndarray:
        raise ValueError(f"{name} grows: it is read by ids, or saved as a snapshot, but not as one tensor")

    def write(self, value: np.ndarray) -> None:
        raise ValueError(f"{self.update.param} grows: it is loaded from a snapshot, not set as one tensor")

    def _check(self, ids: np.ndarray, what: str) -> None:
        if ids.dtype != np.int64:
            raise IndexError(f"ids of {self.update.param} were {what} as {ids.dtype}; they are int64")


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
