"""Tables of rows with any ids in a process without servers: what a model for inference looks rows up in."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from refluid.errors import OutOfRangeError
from refluid.files.tensors import write_rows_in_parts
from refluid.files.variables import lookups_in
from refluid.ir import Program, Variable, VarType
from refluid.ir.operator import Operator
from refluid.ir.vartype import as_numpy
from refluid.lowering.exchange import Exchange
from refluid.ops.core.growing import NO_ROW, SHARDS
from refluid.ops.core.values import Ragged, plain
from refluid.runtime.tables.files.chain import SavedTable
from refluid.runtime.tables.files.exports import count_rows, height_of, rows_of
from refluid.runtime.tables.files.loading import load_rows
from refluid.runtime.tables.kernels.beginning import BEGINNING_SIZE
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Beginning, Rule, zeros
from refluid.runtime.tables.table import Table
from refluid.scope import Scope
from refluid.tensors import RemoteArray

ROWS_BEGIN = "rows_begin"  # an attribute of lookups: how rows begin that a table lacks


class AnyRows(RemoteArray):
    """A table whose rows have any int64 ids. Its shape is a hint, and there is no tensor of all rows."""

    any_ids = True
    needs_all = False  # whether looking up an id that has no row is an error

    @abstractmethod
    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Those of some ids that have no rows, each once."""

    @abstractmethod
    def ids(self) -> Iterator[np.ndarray]:
        """The ids of all rows, a part at a time."""

    def read(self) -> np.ndarray:
        raise ValueError(
            f"table {self.name} has rows with any ids ({self.where()}): operators can look rows up in it, but it "
            "cannot be read, computed with or exported as one tensor"
        )

    def check_writable(self, written: str) -> None:
        raise RuntimeError(
            f"table {self.name} has rows with any ids ({self.where()}) and is for inference only; "
            f"{written} has no place"
        )


class RowsInMemory(AnyRows):
    """Rows in the memory of this process.

    Args:
      height: as the program describes the table; a hint.
      table: the rows. An id without one has the values that its row would begin with ...
      needs_all: ... unless that is an error, as in real Fluid.
    """

    def __init__(self, table: Table, height: int, *, needs_all: bool = False):
        super().__init__(table.name, (height, table.form.width), table.form.dtype)
        self._table, self.needs_all = table, needs_all

    def read_rows(self, rows: np.ndarray | range) -> np.ndarray:
        return self._table.read(np.asarray(rows, np.int64), creates=False)

    def missing(self, ids: np.ndarray) -> np.ndarray:
        found = np.unique(ids).astype(np.int64)
        if not self._table.count_new(found):
            return found[:0]
        return np.array([id for id in found if self._table.count_new(np.array([id], np.int64))], np.int64)

    def ids(self) -> Iterator[np.ndarray]:
        return (ids for ids, _ in self._table.records())

    def write_rows(self, stream: BinaryIO) -> None:
        def parts() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            return ((ids, self._table.read(ids, creates=False)) for ids in self.ids())

        _, highest = self._table.id_range()
        height = max(self.shape[0], 1 + (highest or 0))
        write_rows_in_parts(stream, len(self._table), height, np.empty((0, self.shape[1]), self.dtype), parts)

    def where(self) -> str:
        return "in this process"


class RowsInFiles(AnyRows):
    """The rows of a saved table on their way to another file."""

    def __init__(self, saved: SavedTable, shape: Sequence[int]):
        super().__init__(saved.manifest.table, shape, saved.form.dtype)
        self._saved = saved

    def read_rows(self, rows: np.ndarray | range) -> np.ndarray:
        raise NotImplementedError(f"rows of {self._saved.path} are read in order only")

    def missing(self, ids: np.ndarray) -> np.ndarray:
        raise NotImplementedError(f"rows of {self._saved.path} are read in order only")

    def ids(self) -> Iterator[np.ndarray]:
        return (ids for ids, _ in rows_of(self._saved))

    def write_rows(self, stream: BinaryIO) -> None:
        saved, like = self._saved, np.empty((0, self.shape[1]), self.dtype)
        height = max(self.shape[0], height_of(saved))
        write_rows_in_parts(stream, count_rows(saved), height, like, lambda: rows_of(saved))

    def where(self) -> str:
        return f"in {self._saved.path}"


def look_up_any(program: Program, name: str, beginning: Beginning) -> None:
    """Has a program look rows of any ids up in a table; real Fluid knows such tables as selected rows as well."""
    program.global_block().var(name).type = VarType.SELECTED_ROWS
    for op in lookups_in(program, name):
        op.set_attr(ROWS_BEGIN, json.dumps(beginning.numbers().tolist()))


def hold_rows(variable: Variable, ids: np.ndarray, weights: np.ndarray) -> RowsInMemory:
    """A table of a program for inference, with rows that were read from its file.

    Raises:
      ValueError: the rows do not fit the program.
    """
    dtype, shape = as_numpy(variable.dtype), variable.shape
    if len(shape) != 2 or (weights.shape[1:], weights.dtype) != (shape[1:], dtype):
        raise ValueError(
            f"variable {variable.name} has rows of {list(shape[1:])} {dtype}; its file holds rows of "
            f"{list(weights.shape[1:])} {weights.dtype}: it belongs to another model"
        )
    if len(np.unique(ids)) != len(ids) or (len(ids) and ids.max() == NO_ROW):
        raise ValueError(f"variable {variable.name}: its file has a row twice, or one with id {NO_ROW}")
    beginning = _beginning_in(variable)
    table = Table(variable.name, RecordForm(shape[1], dtype), Rule("add", {}), beginning or zeros())
    load_rows(table, [(ids.astype(np.int64, copy=False), weights, {})], (0, SHARDS))
    return RowsInMemory(table, shape[0], needs_all=beginning is None)


def _beginning_in(variable: Variable) -> Beginning | None:
    """What the program says of rows that are not in the table."""
    for op in lookups_in(variable.block.program, variable.name):
        if text := op.attrs.get(ROWS_BEGIN):
            try:
                numbers = np.array(json.loads(text), np.float64)
                if numbers.shape == (BEGINNING_SIZE,) and np.isfinite(numbers).all():
                    return Beginning.read(numbers)
            except (ValueError, TypeError):
                pass
            raise ValueError(f"variable {variable.name}: the attribute {ROWS_BEGIN} of {op.type} is not valid")
    return None


class AnyRowLookups(Exchange):
    """Lookups of a program in tables of any ids in this process, each row once."""

    def __init__(self, ops: Sequence[Operator], scope: Scope):
        self._lookups = [(op, _table_of(scope, op.input("W")[0])) for op in ops]

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for op, table in self._lookups:
            value = env[op.input("Ids")[0]]
            found[op.output("Out")[0]] = _looked_up(op, table, value)
        return found


def _table_of(scope: Scope, name: str) -> AnyRows:
    held = scope.find_var(name)
    table = None if held is None else held.value
    assert isinstance(table, AnyRows), f"{name} held rows of any ids when this step was planned"
    return table


def _looked_up(op: Operator, table: AnyRows, value: Any) -> Any:
    ids = np.asarray(plain(value)).reshape(-1)
    if ids.dtype.kind not in "iu" or (ids.size and ids.max() == NO_ROW):
        what = f"are {ids.dtype}" if ids.dtype.kind not in "iu" else f"contain {NO_ROW}, which stands for no row"
        raise _out_of_range(op, f"ids of rows of table {table.name} must be int64; these {what}")
    different, places = np.unique(ids.astype(np.int64, copy=False), return_inverse=True)
    padding = op.attrs.get("padding_idx", -1)
    if table.needs_all and len(lacking := table.missing(different[different != padding])):
        raise _out_of_range(op, f"id {lacking[0]} is not in the table {table.name}")
    rows = table.read_rows(different)[places]
    if padding >= 0:
        rows[ids == padding] = 0
    shape = value.shape if op.type == "lookup_table_v2" else value.shape[:-1]
    rows = rows.reshape(*shape, table.shape[1])
    return value.with_data(rows) if isinstance(value, Ragged) else rows


def _out_of_range(op: Operator, problem: str) -> OutOfRangeError:
    return OutOfRangeError(op.type, problem, [f"Ids         {op.input('Ids')[0]}"], written_at=str(op.written_at))
