"""Where every parameter lives: its slices, and the server of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from refluid.ir import Program, Variable, VarType
from refluid.ir.modes import Mode
from refluid.ir.slices import Slice
from refluid.ir.table_options import TableOptions
from refluid.transpiler.config import DistributeTranspilerConfig, choose_mode
from refluid.transpiler.dispatch import PSDispatcher, RoundRobin
from refluid.transpiler.lookups import growing_tables, options_of, remote_tables, trained_by_rows
from refluid.transpiler.parts import Update, take_apart
from refluid.transpiler.slices import count_slices, share_out, slice_name, slice_variable

_DEFAULT = TableOptions()


@dataclass(frozen=True)
class Placed:
    """A parameter, or another variable that trainers start with, and its slices on servers."""

    param: str
    slices: tuple[Slice, ...]
    dtype: VarType
    grad: str = ""  # none for what servers do not train
    sparse: bool = False  # whether its gradient is SelectedRows
    remote: bool = False  # whether trainers hold none of it and look up rows
    options: TableOptions = _DEFAULT  # of a table that grows

    @property
    def grows(self) -> bool:
        """Whether it is a table of rows with any ids, which begin when they are used first."""
        return self.slices[0].grows

    @property
    def endpoints(self) -> list[str]:
        """The server of each slice."""
        return [part.endpoint for part in self.slices]

    @property
    def sections(self) -> list[int]:
        """The number of rows of each slice."""
        return [part.rows for part in self.slices]

    @property
    def names(self) -> list[str]:
        """The names of the slices."""
        return [part.name for part in self.slices]

    @property
    def grad_names(self) -> list[str]:
        """The names of the slices of its gradient."""
        return [slice_name(self.grad, index, len(self.slices)) for index in range(len(self.slices))]

    def on(self, endpoint: str) -> list[int]:
        """The indices of the slices that a server holds."""
        return [index for index, part in enumerate(self.slices) if part.endpoint == endpoint]


@dataclass(frozen=True)
class Placement:
    """A job: its servers, its trainers, its mode, and where all parameters live."""

    endpoints: tuple[str, ...]
    trainers: int
    mode: Mode
    params: tuple[Placed, ...]
    kept: tuple[Placed, ...] = ()  # variables of trainers; servers hold only the values that all start with

    def of(self, param: str) -> Placed:
        """Where a parameter is."""
        return self._by_name[param]

    @cached_property
    def _by_name(self) -> dict[str, Placed]:
        return {placed.param: placed for placed in self.params}

    def describe(self) -> str:
        """A readable table, one line per slice."""
        lines = [f"{self.mode.name.lower()} training, {len(self.endpoints)} servers, {self.trainers} trainers"]
        for placed in self.params:
            kind = " (table that grows)" if placed.grows else " (table)" if placed.remote else ""
            lines += [f"  {part.endpoint}  {part.name}  {list(part.shape)}{kind}" for part in placed.slices]
        whole = [kept.slices[0] for kept in self.kept]
        lines += [f"  {part.endpoint}  {part.name}  {list(part.shape)} (initial value only)" for part in whole]
        return "\n".join(lines)


def place(
    program: Program,
    endpoints: Sequence[str],
    trainers: int,
    sync_mode: bool = True,
    config: DistributeTranspilerConfig | None = None,
) -> Placement:
    """Decides where the parameters of a training program live."""
    config = config or DistributeTranspilerConfig()
    mode = choose_mode(config, sync_mode)
    parts = take_apart(program)
    remote = remote_tables(program, parts)
    growing = growing_tables(program, remote)
    if mode is Mode.GEO:  # other tables are trained as a whole
        remote = growing = trained_by_rows(program, parts, growing)
    options = options_of(program, growing, mode)
    dispatcher = make_dispatcher(config.split_method, endpoints)
    dispatcher.reset()
    params = []
    for update in _in_order_of_dispatch(parts.updates, config):
        name = update.param.name
        if name in growing:
            slices = share_out(name, update.param.shape[1:], endpoints)
        else:
            slices = _dispatch(dispatcher, _slices(update, len(endpoints), config), update.param)
        sparse = program.global_block().var(update.grad).type == VarType.SELECTED_ROWS
        params.append(
            Placed(name, slices, update.param.dtype, update.grad, sparse, name in remote, options.get(name, _DEFAULT))
        )
    return Placement(tuple(endpoints), trainers, mode, tuple(sorted(params, key=lambda placed: placed.param)))


def _in_order_of_dispatch(updates: Sequence[Update], config: DistributeTranspilerConfig) -> list[Update]:
    """By name, as in Fluid. Unsliced parameters by size, where Fluid shuffles: otherwise one server could get all
    biases and another all weights."""
    if config.slice_var_up:
        return list(updates)
    return sorted(updates, key=lambda update: -math.prod(update.param.shape))


def _slices(update: Update, servers: int, config: DistributeTranspilerConfig) -> tuple[Slice, ...]:
    shape = update.param.shape
    cut = config.slice_var_up and update.sliceable
    return slice_variable(update.param.name, shape, count_slices(shape, servers, config.min_block_size) if cut else 1)


def make_dispatcher(method: Any, endpoints: Sequence[str]) -> PSDispatcher:
    """The dispatcher that ``split_method`` names: a class, or None for RoundRobin."""
    method = RoundRobin if method is None else method
    if not (isinstance(method, type) and issubclass(method, PSDispatcher)):
        raise TypeError(f"split_method must be a class derived from PSDispatcher, such as RoundRobin, not {method!r}")
    return method(endpoints)


def _dispatch(dispatcher: PSDispatcher, slices: Sequence[Slice], param: Variable) -> tuple[Slice, ...]:
    """The slices with the endpoints that the dispatcher chooses."""
    block = Program().global_block()
    variables = [block.create_var(name=s.name, shape=s.shape, dtype=param.dtype, persistable=True) for s in slices]
    chosen = tuple(dispatcher.dispatch(variables))
    who = type(dispatcher).__name__
    if len(chosen) != len(slices):
        raise ValueError(f"{who}.dispatch gave {len(chosen)} endpoints for the {len(slices)} slices of {param.name}")
    strange = [endpoint for endpoint in chosen if endpoint not in dispatcher.eps]
    if strange:
        raise ValueError(f"{who}.dispatch placed {param.name} on {strange[0]!r}, which is not among {dispatcher.eps}")
    return tuple(replace(part, endpoint=endpoint) for part, endpoint in zip(slices, chosen, strict=True))
