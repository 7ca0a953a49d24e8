"""The state of one server: variables in a scope, tables of rows, and the update that training applies to them.

The learning-rate block and all optimize blocks of the server's program become one compiled function, so that an update
is one call. The operators are those that would have run on a trainer. Parameters whose gradients are rows are tables
(`held_tables`), which are updated row by row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import numpy as np

from refluid.files.variables import save_variables
from refluid.ir.block import Block
from refluid.ir.modes import TRAINER_ID
from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.ir.slices import SLICES, Slice
from refluid.ir.table_options import TABLE_OPTIONS, TableOptions
from refluid.ir.variable import Variable
from refluid.ir.vartype import VarType, as_numpy
from refluid.lowering.folding import reads_and_writes
from refluid.lowering.staging import Shifted
from refluid.lowering.step import CompiledStep, Step
from refluid.ops.core.values import SelectedRows
from refluid.runtime.server.durable.frozen import FrozenArrays
from refluid.runtime.server.held_tables import FixedTable, GrowingTable, HeldTable
from refluid.runtime.server.table_updates import NotRowByRowError, read_table_update
from refluid.runtime.transport.wire import Rows, RowSizes, Value
from refluid.scope import Scope
from refluid.tensors import LoDTensor

_COUNTED = "@COUNTED."  # in names of what tables have counted


class Shard:
    """The variables of one server."""

    def __init__(self, listen: Operator, scope: Scope, place: Any):
        self._program = listen.block.program
        self._scope, self._place = scope, place
        self._updates: dict[int, _Update] = {}
        self._row_sizes = RowSizes()
        blocks: list[Block] = listen.attr("optimize_blocks")
        lr_index = listen.attrs.get("lr_decay_block_id", -1)
        self._lr_block = self._program.block(lr_index) if lr_index >= 0 else None
        self._blocks = [block for block in blocks if block is not self._lr_block]
        self._trainers = listen.attr("Fanin")
        # In sync mode a gradient has one variable per trainer, and the block begins with their sum.
        self._per_trainer = any(name.endswith(".trainer_0") for name in listen.input("X"))
        self.pushable = {_split_trainer(name)[0]: self._variable(name) for name in listen.input("X")}
        self._schedule: Step | None = None
        self._frozen: FrozenArrays | None = None  # what `state` has returned last
        self.pause_seconds: Callable[[float], object] = lambda seconds: None  # told how long an update had to wait
        self.slices: list[str] = list(listen.attrs.get(SLICES, ()))
        self._copies = _copies_per_trainer(self._blocks)
        self.tables: dict[str, HeldTable] = {}  # by parameter
        self._taken: set[int] = set()  # positions of operators that update tables
        self._find_tables(listen)
        self._held_by = {name: table for table in self.tables.values() for name in table.variables}

    def _find_tables(self, listen: Operator) -> None:
        ops = [op for block in self._all_blocks() for op in block.ops]
        places = {id(op): place for place, op in enumerate(ops)}
        endpoint = listen.attr("endpoint")
        parts = {part.name: part for part in (Slice.parse(text, endpoint) for text in self.slices)}
        options = dict(text.split(":", 1) for text in listen.attrs.get(TABLE_OPTIONS, ()))
        for text in listen.attrs.get("sparse_grad_to_param", ()):
            pushed, _, param = text.partition(":")
            received = {name for name in listen.input("X") if _split_trainer(name)[0] == pushed}
            part = parts[param]
            try:
                update, taken = read_table_update(ops, param, pushed, received)
            except NotRowByRowError as error:
                if part.grows:
                    raise ValueError(f"rows of table {part.whole} cannot be updated one by one: {error}") from error
                continue  # the compiled update takes selected rows as well, only slower
            dtype = self._program.global_block().var(param).dtype
            if part.grows:
                chosen = TableOptions.parse(options.get(param, ""))
                self.tables[param] = GrowingTable(update, part, dtype, self._scope, chosen)
            else:
                self.tables[param] = FixedTable(update, part, dtype, self._scope)
            self._taken |= {places[op] for op in taken}

    def _all_blocks(self) -> list[Block]:
        """The blocks of an update, in order."""
        return self._blocks if self._lr_block is None or not self._per_trainer else [self._lr_block, *self._blocks]

    # Variables

    def _variable(self, name: str) -> Variable:
        found = next((b.vars[name] for b in self._program.blocks if name in b.vars), None)
        if found is None:
            raise KeyError(f"the server's program has no variable {name}")
        return found

    def describe(self, name: str) -> tuple[str, tuple[int, ...], bool]:
        """dtype, shape and whether it is selected rows, of a variable that may be pushed or pulled."""
        variable = self.pushable.get(name) or self._variable(name)
        return as_numpy(variable.dtype).name, tuple(variable.shape), variable.type == VarType.SELECTED_ROWS

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """The current values by name; later updates do not change what was returned."""
        return {name: self._read(name) for name in names}

    def _read(self, name: str) -> np.ndarray:
        table = self._held_by.get(name)
        return np.asarray(self._held(name)) if table is None else table.read(name)

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        """Some rows of a table."""
        if name in self.tables:
            return self.tables[name].look_up(ids)
        table = np.asarray(self._held(name))
        if ids.size and (ids.min() < 0 or ids.max() >= table.shape[0]):
            bad = ids[(ids < 0) | (ids >= table.shape[0])][0]
            raise IndexError(f"row {bad} of {name} was requested; on this server it has {table.shape[0]} rows")
        return table[ids]

    def write(self, name: str, value: np.ndarray) -> None:
        """Overwrites a variable."""
        held = self._held(name)
        if held.shape != value.shape or held.dtype != value.dtype:
            raise ValueError(
                f"cannot write {value.dtype}{list(value.shape)} to {name}, which is {held.dtype}{list(held.shape)}"
            )
        if name in self.tables:
            self.tables[name].write(value)
        else:
            self._put(name, value)

    def _put(self, name: str, value: Any) -> None:
        with jax.enable_x64(True):
            self._scope.var(name).get_tensor().value = jax.device_put(np.array(value), self._place.device())

    def _held(self, name: str) -> Any:
        held = self._scope.find_var(name)
        value = None if held is None else held.value
        if value is None:
            raise KeyError(f"variable {name} has no value on this server; was its startup program run?")
        return value

    def state(self) -> dict[str, np.ndarray]:
        """All but the rows of tables as it is now, complete after `settle`. The next call may use the same memory."""
        self._frozen = FrozenArrays(self._kept(), {} if self._frozen is None else self._frozen.arrays)
        return self._frozen.arrays

    def settle(self) -> float:
        """Returns when what `state` has returned is complete; returns how many seconds that took."""
        if self._frozen is None or self._frozen.is_complete:
            return 0.0
        began = time.perf_counter()
        self._frozen.finish()
        return time.perf_counter() - began

    def _kept(self) -> dict[str, np.ndarray]:
        """Variables, and what tables have counted of ids without rows."""
        counted = {f"{param}{_COUNTED}": table.table.counted() for param, table in self.tables.items()}
        return {**self._variables(), **{f"{prefix}{k}": v for prefix, each in counted.items() for k, v in each.items()}}

    def _variables(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for name in self._scope.local_var_names():
            held = self._scope.find_var(name)
            value = None if held is None or not isinstance(held.holder, LoDTensor) else held.value
            if value is not None and name not in self._held_by:
                found[name] = np.asarray(value)
        return found

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """The inverse of `state`.

        Raises:
          ValueError: a variable is not there, or not of that form: the state is that of another program.
        """
        held = self._kept()
        for name, value in state.items():
            ours = held.get(name)
            if ours is not None and (ours.shape, ours.dtype) != (value.shape, value.dtype):
                raise ValueError(
                    f"variable {name} was saved as {value.dtype}{list(value.shape)}; in this server's program it is "
                    f"{ours.dtype}{list(ours.shape)}"
                )
        missing = sorted(held.keys() - state.keys())
        if missing:
            raise ValueError(f"variable {missing[0]} of this server's program is not in what was saved")
        for param, table in self.tables.items():
            prefix = f"{param}{_COUNTED}"
            table.table.count_on({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
        for name, value in state.items():
            if _COUNTED not in name:
                self._put(name, value)

    # Updates

    def update(
        self, pushes: Sequence[Mapping[str, Value]], trainer: int | None = None, schedule_steps: int = 1
    ) -> None:
        """Applies one update: the pushes of all trainers of a round, or of one trainer on its own.

        ``schedule_steps`` is how many steps the learning-rate schedule takes first; in a round it takes one, as a part
        of the update.
        """
        waited = self.settle()
        if waited:
            self.pause_seconds(waited)
        update = self._updates.get(len(pushes))
        if update is None:
            update = self._updates[len(pushes)] = self._make_update(len(pushes))
        scale = 1.0 / len(pushes) if self._per_trainer else 1.0
        gathered = {table.update.param: table.gather(pushes) for table in self.tables.values()}
        for table in self.growing:  # before anything is applied
            table.check_room(gathered[table.update.param][0])
        for _ in range(0 if self._per_trainer else schedule_steps):
            self._advance_schedule(update)
        if update.step is not None and not self._has_rows_only(pushes, update):
            squares = {
                table.update.squares: table.squares(gathered[param][1], scale)
                for param, table in self.tables.items()
                if table.update.squares is not None
            }
            values = [
                np.array([trainer], np.int64) if name == TRAINER_ID
                else squares[name] if name in squares
                else self._fed(name, pushes, position)
                for name, position in update.feeds
            ]  # fmt: skip
            with jax.enable_x64(True):
                update.step(values)
        for param, table in self.tables.items():
            rate, factor = (self._number(name) for name in (table.update.rate, table.update.factor))
            table.apply(*gathered[param], rate, scale * factor)

    def _has_rows_only(self, pushes: Sequence[Mapping[str, Value]], update: _Update) -> bool:
        """Whether a push has nothing but rows, as when a trainer of GEO mode gives copies of rows up."""
        needed = {name for name, _ in update.feeds if name != TRAINER_ID}
        return not self._per_trainer and bool(needed) and not any(needed & push.keys() for push in pushes)

    def _number(self, name: str | None) -> float:
        return 1.0 if name is None else float(np.asarray(self._held(name)).reshape(-1)[0])

    def _fed(self, name: str, pushes: Sequence[Mapping[str, Value]], position: int) -> Any:
        value = pushes[position][name]
        if not isinstance(value, Rows):
            return Shifted.of(value)
        height = self.pushable[name].shape[0]
        size = self._row_sizes.fit(name, max(len(push[name].rows) for push in pushes))  # pyright: ignore[reportAttributeAccessIssue]
        return SelectedRows(*value.padded(height, size), height)

    def _make_update(self, pushes: int) -> _Update:
        main = _as_one_block(self._program, self._all_blocks())
        main.ops = [op for place, op in enumerate(main.ops) if place not in self._taken]
        for op, following in zip_longest(main.ops, main.ops[1:]):
            _take_pushes(op, following, pushes, self._trainers)
        reads, _ = reads_and_writes(main.ops)
        updates = [table.update for table in self.tables.values()]
        squares = {update.squares for update in updates}
        feeds: list[tuple[str, int]] = []
        names: list[str] = []
        for name in reads:
            plain, trainer = _split_trainer(name)
            if plain in self.pushable or name == TRAINER_ID or name in squares:
                names.append(name)
                feeds.append((plain, trainer))
        state = set(reads) - set(names)
        state |= {name for update in updates for name in (update.rate, update.factor) if name is not None}
        if not main.ops:
            return _Update(None, feeds, state)
        held = {Slice.parse(text).name for text in self.slices}  # a learning rate is written and saved, but not read
        return _Update(self._compile(main, names, state | held), feeds, state)

    def _compile(self, main: Block, feeds: Sequence[str], state: Set[str]) -> Step:
        for variable in main.vars.values():
            variable.persistable = variable.name in state
        return CompiledStep(main, feeds, (), self._place).bind(self._scope)

    def _advance_schedule(self, update: _Update) -> None:
        if self._lr_block is None:
            return
        if self._schedule is None:
            main = _as_one_block(self._program, [self._lr_block])
            reads, _ = reads_and_writes(main.ops)
            self._schedule = self._compile(main, (), update.state | set(reads))
        with jax.enable_x64(True):
            self._schedule(())

    @property
    def remembers_pulls(self) -> bool:
        """dc_asgd: whether it keeps the parameters that each trainer has received."""
        return bool(self._copies)

    def remember_pulled(self, trainer: int) -> None:
        """dc_asgd: keeps the parameters as this trainer has just received them."""
        for parameter, copies in self._copies.items():
            self._put(copies[trainer], self._held(parameter))

    def pulled(self, trainer: int, names: Iterable[str]) -> dict[str, np.ndarray]:
        """dc_asgd: variables as this trainer has received them last; others as they are now."""
        return {name: self._read(self._copies[name][trainer] if name in self._copies else name) for name in names}

    @property
    def keeps_copies(self) -> bool:
        """dc_asgd: whether parameters are kept as each trainer has received them."""
        return bool(self._copies)

    @property
    def growing(self) -> list[GrowingTable]:
        """The tables that grow."""
        return [table for table in self.tables.values() if isinstance(table, GrowingTable)]

    def shrink(self, names: Sequence[str], options: str) -> dict[str, int]:
        """Gives up rows of tables, of all if none are named; returns how many of each."""
        tables = {table.part.whole: table for table in self.growing}
        strange = [name for name in names if name not in tables]
        if strange:
            raise ValueError(f"{strange[0]} is not a table that grows; here these are: {', '.join(tables) or 'none'}")
        chosen = TableOptions.parse(options) if options else None
        return {name: tables[name].life.shrink(chosen) for name in names or tables}

    def save(self, folder: str) -> None:
        """Writes every variable of this server to a file of its own in a folder, but for tables that grow."""
        parts = [part for part in map(Slice.parse, self.slices) if not part.grows]
        save_variables(self._scope, [self._variable(part.name) for part in parts], folder)


class _Update(NamedTuple):
    """A compiled update and what it is fed."""

    step: Step | None  # None if there are only tables
    feeds: Sequence[tuple[str, int]]  # a pushed variable, and the position of the push that has it
    state: set[str]


def _as_one_block(program: Program, blocks: Sequence[Block]) -> Block:
    """The main block of a copy of a server's program, with the operators of ``blocks`` in order."""
    copy = program.clone()
    main = copy.global_block()
    main.ops = []
    for original in blocks:
        block = copy.block(original.idx)
        for variable in list(block.vars.values()):
            variable.copy_to(main)
        for op in block.ops:
            op.block = main
            main.ops.append(op)
    copy.changed()
    return main


def _take_pushes(op: Operator, following: Operator | None, pushes: int, trainers: int) -> None:
    """Makes an operator that averages over all trainers average over those that pushed."""
    names = op.input("X") if op.type == "sum" else []
    if pushes == trainers or not names or not names[0].endswith(".trainer_0"):
        return
    op.inputs["X"] = names[:pushes]
    assert following is not None and following.type == "scale", "a sum over trainers is followed by its scale"
    following.attrs["scale"] = 1.0 / pushes


def _copies_per_trainer(blocks: Sequence[Block]) -> dict[str, list[str]]:
    """dc_asgd: the copies of each parameter, one per trainer."""
    found = {}
    for block in blocks:
        for op in block.ops:
            if op.type == "ref_by_trainer_id":
                found[op.input("X")[0].removesuffix(".trainer_0_bak")] = op.input("X")
    return found


def _split_trainer(name: str) -> tuple[str, int]:
    """``("w@GRAD", 1)`` for ``w@GRAD.trainer_1``; names without a trainer belong to the first push."""
    plain, _, trainer = name.rpartition(".trainer_")
    return (plain, int(trainer)) if trainer.isdigit() and plain else (name, 0)
