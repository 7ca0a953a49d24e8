"""Exchange plans: what one exchange of a trainer pushes, pulls and looks up, read from its operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from refluid.ir.modes import Mode
from refluid.ir.operator import Operator
from refluid.ir.slices import SHARDS, Slice
from refluid.ir.variable import Variable
from refluid.ir.vartype import VarType, as_numpy
from refluid.runtime.tables.batches import owners, shared_out


@dataclass(frozen=True)
class Job:
    """The job that this process is a trainer of."""

    trainer: int
    trainers: int
    endpoints: tuple[str, ...]
    mode: Mode


@dataclass(frozen=True)
class SlicedVariable:
    """A variable of a trainer and its slices on servers, which together hold every row once."""

    name: str
    slices: tuple[Slice, ...]
    dtype: np.dtype
    sparse: bool = False  # the value is selected rows
    adds: bool = False  # pushes of several steps are summed, not averaged
    ids: tuple[str, ...] = ()  # GEO tables: the variables whose ids were looked up
    wire: np.dtype | None = None  # what rows are sent as, if not as they are
    shape: tuple[int, ...] = field(init=False)  # of the whole variable

    def __post_init__(self):
        object.__setattr__(self, "shape", self.slices[0].whole_shape)
        row, last = 0, SHARDS if self.grows else self.shape[0] if self.shape else 1
        for part in sorted(self.slices, key=lambda part: part.start):
            if part.start != row:
                raise ValueError(f"{part.name} holds rows {part.start} to {part.end} of {self.name}, row {row} is next")
            row = part.end
        if row != last:
            raise ValueError(f"the slices of {self.name} end at row {row} of {last}")

    @property
    def grows(self) -> bool:
        """Whether it is a table of rows with any ids."""
        return self.slices[0].grows

    def shared_out(self, ids: np.ndarray) -> list[tuple[Slice, np.ndarray, np.ndarray]]:
        """For each slice, the positions of the ids of its rows, and their numbers there."""
        if self.grows:
            places = shared_out(ids, self._owners, len(self.slices))
            return [(part, chosen, ids[chosen]) for part, chosen in zip(self.slices, places, strict=True)]
        if len(self.slices) == 1:
            return [(self.slices[0], np.arange(len(ids)), ids)]
        found = []
        for part in self.slices:
            inside = np.flatnonzero((ids >= part.start) & (ids < part.end))
            found.append((part, inside, ids[inside] - part.start))
        return found

    @cached_property
    def _owners(self) -> np.ndarray:
        return owners([part.rows for part in self.slices])


@dataclass(frozen=True)
class Lookup:
    """Rows of a table on servers, for several variables of ids."""

    table: SlicedVariable
    ids: tuple[str, ...]
    outputs: tuple[str, ...]
    padding: int
    keeps_last: bool  # ids of shape [..., 1] lose their last dim, others keep all
    operator: Operator
    trainer_budget: int = 0  # GEO: bytes that copies of its rows may take on a trainer; 0 for any


@dataclass(frozen=True)
class TrainedTable:
    """A table that grows, of which a trainer of GEO mode trains copies of rows by itself."""

    table: SlicedVariable
    grad: str
    rate: str  # the variable of the learning rate


@dataclass
class ExchangePlan:
    """What one exchange communicates."""

    job: Job
    pushes: list[SlicedVariable] = field(default_factory=list)
    pulls: list[SlicedVariable] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    trained: list[TrainedTable] = field(default_factory=list)
    dropped: list[Variable] = field(default_factory=list)  # tables that trainers do not hold
    kept: list[str] = field(default_factory=list)  # variables of trainers; servers hold only their initial values
    initial: bool = False
    geo_steps: int = 0
    averages: bool = False  # GEO: servers hold the mean of what trainers push
    in_background: bool = False  # the program is made for a communicator: it communicates while it computes


def read_plan(ops: Sequence[Operator]) -> ExchangePlan:
    """Reads the operators of a trainer's exchange."""
    plan = ExchangePlan(job_of(ops))
    pushes, pulls = _Collected(), _Collected()
    parts = _parts(ops)
    for op in ops:
        if op.type == "send" and op.attrs.get("table_name"):
            plan.trained.append(_trained(op))
            plan.geo_steps = op.attr("geo_push_nums")
        elif op.type == "send":
            sparse = bool(op.attrs.get("is_sparse"))
            options = {"adds": bool(op.attrs.get("merge_add")), **({"sparse": True} if sparse else {}), **_wire(op)}
            pushes.add(op, op.input("X"), op.attr("send_varnames"), parts, **options)
            plan.averages |= bool(op.attrs.get("averages"))
            plan.geo_steps = op.attrs.get("geo_push_nums", plan.geo_steps)
        elif op.type == "recv":
            pulls.add(op, op.output("Out"), op.attrs.get("recv_varnames") or op.output("Out"), parts)
            plan.kept += op.output("Out") if op.attrs.get("kept") else ()
        elif op.type == "distributed_lookup_table":
            plan.lookups.append(_lookup(op))
        elif op.type == "fake_init":
            plan.dropped += [_variable(op, name) for name in op.output("Out")]
        elif op.type not in ("send_barrier", "fetch_barrier", "concat", "split_byref", "split_selected_rows"):
            raise NotImplementedError(f"{op.type}: refluid's runtime does not support it here ({op.written_at})")
        plan.in_background |= bool(op.attrs.get("in_background"))
        plan.initial |= bool(op.attrs.get("initial") or op.attrs.get("offer"))
    plan.pushes, plan.pulls = pushes.variables(), pulls.variables()
    return plan


def job_of(ops: Sequence[Operator]) -> Job:
    """The job that the operators belong to."""
    op = next(op for op in ops if "trainers" in op.attrs)
    endpoints = tuple(op.attr("endpoints"))
    return Job(op.attr("trainer_id"), op.attr("trainers"), endpoints, Mode(op.attr("distributed_mode")))


_Part = tuple[str, int, int]  # a variable, and the rows of it that a local slice holds


def _parts(ops: Sequence[Operator]) -> dict[str, _Part]:
    """The local slices that operators split off or concatenate."""
    found: dict[str, _Part] = {}
    for op in ops:
        if op.type == "concat":
            whole, names = op.output("Out")[0], op.input("X")
            heights = [_variable(op, name).shape[0] for name in names]
        elif op.type in ("split_byref", "split_selected_rows"):
            whole, names = op.input("X")[0], op.output("Out")
            heights = op.attrs.get("height_sections") or op.attr("sections")
        else:
            continue
        found.update({n: (whole, start, end) for n, (start, end) in zip(names, _ranges(heights), strict=True)})
    return found


class _Collected:
    """Slices of variables, collected from several operators."""

    def __init__(self):
        self._slices: dict[str, list[Slice]] = {}
        self._facts: dict[str, dict] = {}

    def add(self, op: Operator, local: Sequence[str], names: Sequence[str], parts: dict[str, _Part], **facts) -> None:
        """Adds what ``op`` moves: ``local`` variables, which are ``names`` on servers."""
        endpoints = op.attr("epmap")
        if any(name in parts for name in local):
            wholes = [parts[name] for name in local]
        else:
            variable = _variable(op, local[0])
            wholes = [
                (variable.name, *bounds) for bounds in _bounds(_shape(op, variable), names, op.attrs.get("sections"))
            ]
            facts["ids"] = tuple(local[1:])
        for (whole, start, end), name, endpoint in zip(wholes, names, endpoints, strict=True):
            variable = _variable(op, whole)
            part = Slice(name, whole, start, end, _shape(op, variable), endpoint)
            self._slices.setdefault(whole, []).append(part)
            defaults = {"dtype": as_numpy(variable.dtype), "sparse": variable.type == VarType.SELECTED_ROWS}
            self._facts[whole] = {**defaults, **facts}

    def variables(self) -> list[SlicedVariable]:
        return [SlicedVariable(name, tuple(slices), **self._facts[name]) for name, slices in self._slices.items()]


def _lookup(op: Operator) -> Lookup:
    sliced = _table(op, op.attr("table_names"), op.attr("height_sections"), **_wire(op))
    keeps_last = op.attrs.get("lookup_version", 1) == 2
    padding, budget = op.attrs.get("padding_idx", -1), op.attrs.get("trainer_budget", 0)
    return Lookup(sliced, tuple(op.input("Ids")), tuple(op.output("Outputs")), padding, keeps_last, op, budget)


def _trained(op: Operator) -> TrainedTable:
    grad, rate = op.input("X")
    table = _table(op, op.attr("send_varnames"), op.attr("sections"), sparse=True, **_wire(op))
    return TrainedTable(table, grad, rate)


def _table(op: Operator, names: Sequence[str], sections: Sequence[int], **facts: Any) -> SlicedVariable:
    """The table of an operator that names it and its slices."""
    table = _variable(op, op.attr("table_name"))
    shape = _shape(op, table)
    slices = tuple(
        Slice(name, table.name, start, end, shape, endpoint)
        for name, endpoint, (start, end) in zip(names, op.attr("epmap"), _bounds(shape, names, sections), strict=True)
    )
    return SlicedVariable(table.name, slices, as_numpy(table.dtype), **facts)


def _wire(op: Operator) -> dict[str, Any]:
    return {"wire": np.dtype(op.attr("wire"))} if op.attrs.get("wire") else {}


def _shape(op: Operator, variable: Variable) -> tuple[int, ...]:
    """The shape of a variable that an operator moves, as servers have it."""
    return (-1, *variable.shape[1:]) if op.attrs.get("grows") else tuple(variable.shape)


def _bounds(shape: Sequence[int], names: Sequence[str], sections: Iterable[int] | None) -> list[tuple[int, int]]:
    if len(names) > 1:
        return _ranges(list(sections or ()))
    return _ranges([(SHARDS if shape[0] < 0 else shape[0]) if shape else 1])


def _ranges(heights: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([0, *accumulate(heights)]))


def _variable(op: Operator, name: str) -> Variable:
    found = op.block.find_var_recursive(name)
    assert found is not None, f"{op.type} names {name}, which its program does not have"
    return found
