"""What an exchange moves, read off its operators: which variables go where, how they are cut, and what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from refluid.ir.operator import Operator
from refluid.ir.variable import Variable
from refluid.ir.vartype import VarType, as_numpy
from refluid.runtime.modes import Mode
from refluid.runtime.trainer.session import Job
from refluid.runtime.transport.wire import pb


@dataclass(frozen=True)
class Slice:
    """Some rows of a variable, as a variable of its own on a server."""

    name: str
    endpoint: str
    begin: int
    end: int


@dataclass(frozen=True)
class Sliced:
    """A variable of the trainer and its slices on servers."""

    name: str
    slices: tuple[Slice, ...]
    dtype: Any
    shape: tuple[int, ...]
    sparse: bool = False  # the value is selected rows
    adds: bool = False  # several pushes are merged by adding them up, not by averaging
    ids: tuple[str, ...] = ()  # GEO tables: what was looked up

    def described(self, suffix: str = "") -> Iterable[tuple[str, Any]]:
        """Each slice's endpoint, and what it must be on the server."""
        for part in self.slices:
            dims = (part.end - part.begin, *self.shape[1:]) if self.shape else ()
            name = part.name + suffix
            yield part.endpoint, pb.Tensor(name=name, dtype=self.dtype.name, dims=dims, sparse=self.sparse)


@dataclass(frozen=True)
class Lookup:
    """Rows of a table on servers, for several variables of ids."""

    table: Sliced
    ids: tuple[str, ...]
    outputs: tuple[str, ...]
    padding: int
    keeps_last: bool  # ids of shape [..., 1] lose their last dim, others keep all
    operator: Operator


@dataclass
class Traffic:
    """All that one exchange moves."""

    job: Job
    pushes: list[Sliced] = field(default_factory=list)
    pulls: list[Sliced] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # what trainers keep: servers only have what all begin with
    initial: bool = False
    geo_steps: int = 0


def read_traffic(ops: Sequence[Operator]) -> Traffic:
    """Reads the operators of a trainer's exchange."""
    traffic = Traffic(job_of(ops))
    cut: dict[str, tuple[str, int, int]] = {}  # a slice -> the variable it is cut from, and where
    joined = {  # a slice -> the variable it becomes part of, and where
        name: (op.output("Out")[0], begin, end) for op in ops if op.type == "concat" for name, begin, end in _parts(op)
    }
    for op in ops:
        if op.type in ("split_byref", "split_selected_rows"):
            sections = op.attrs.get("height_sections") or op.attr("sections")
            for name, (begin, end) in zip(op.output("Out"), _ranges(sections), strict=True):
                cut[name] = op.input("X")[0], begin, end
        elif op.type == "send":
            traffic.pushes += _pushes(op, cut)
            traffic.geo_steps = op.attrs.get("geo_push_nums", traffic.geo_steps)
        elif op.type == "recv":
            traffic.pulls += _pulls(op, joined)
            traffic.kept += op.output("Out") if op.attrs.get("kept") else ()
        elif op.type == "distributed_lookup_table":
            traffic.lookups.append(_lookup(op))
        elif op.type == "fake_init":
            traffic.dropped += op.output("Out")
        elif op.type not in ("send_barrier", "fetch_barrier", "concat"):
            raise NotImplementedError(f"{op.type}: refluid's runtime has no such part of an exchange ({op.written_at})")
        traffic.initial |= bool(op.attrs.get("initial") or op.attrs.get("offer"))
    traffic.pushes, traffic.pulls = _merged(traffic.pushes), _merged(traffic.pulls)
    return traffic


def job_of(ops: Sequence[Operator]) -> Job:
    """The job that the operators belong to."""
    op = next(op for op in ops if "trainers" in op.attrs)
    endpoints = tuple(op.attr("endpoints"))
    return Job(op.attr("trainer_id"), op.attr("trainers"), endpoints, Mode(op.attr("distributed_mode")))


def _pushes(op: Operator, cut: dict[str, tuple[str, int, int]]) -> list[Sliced]:
    names, endpoints = op.attr("send_varnames"), op.attr("epmap")
    inputs = op.input("X")
    adds = bool(op.attrs.get("merge_add"))
    if not any(name in cut for name in inputs):
        variable = _variable(op, inputs[0])
        sparse = variable.type == VarType.SELECTED_ROWS or bool(op.attrs.get("is_sparse"))
        options = {"sparse": sparse, "adds": adds, "ids": tuple(inputs[1:])}
        return [_sliced(variable, names, endpoints, op.attrs.get("sections"), **options)]
    found = []
    for name, there, endpoint in zip(inputs, names, endpoints, strict=True):
        source, begin, end = cut[name]
        found.append(_described(_variable(op, source), (Slice(there, endpoint, begin, end),), adds=adds))
    return found


def _pulls(op: Operator, joined: dict[str, tuple[str, int, int]]) -> list[Sliced]:
    outputs = op.output("Out")
    names = op.attrs.get("recv_varnames") or outputs
    endpoints = op.attr("epmap")
    if not any(name in joined for name in outputs):
        return [_sliced(_variable(op, outputs[0]), names, endpoints, op.attrs.get("sections"))]
    found = []
    for name, there, endpoint in zip(outputs, names, endpoints, strict=True):
        whole, begin, end = joined[name]
        found.append(_described(_variable(op, whole), (Slice(there, endpoint, begin, end),)))
    return found


def _lookup(op: Operator) -> Lookup:
    table = _variable(op, op.attr("table_name"))
    sliced = _sliced(table, op.attr("table_names"), op.attr("epmap"), op.attr("height_sections"))
    keeps_last = op.attrs.get("lookup_version", 1) == 2
    padding = op.attrs.get("padding_idx", -1)
    return Lookup(sliced, tuple(op.input("Ids")), tuple(op.output("Outputs")), padding, keeps_last, op)


def _sliced(
    variable: Variable, names: Sequence[str], endpoints: Sequence[str], sections: Any, **options: Any
) -> Sliced:
    heights = list(sections or ()) if len(names) > 1 else [variable.shape[0] if variable.shape else 1]
    slices = zip(names, endpoints, _ranges(heights), strict=True)
    return _described(variable, tuple(Slice(n, e, begin, end) for n, e, (begin, end) in slices), **options)


def _described(variable: Variable, slices: tuple[Slice, ...], **options: Any) -> Sliced:
    options.setdefault("sparse", variable.type == VarType.SELECTED_ROWS)
    return Sliced(variable.name, slices, as_numpy(variable.dtype), tuple(variable.shape), **options)


def _merged(parts: Sequence[Sliced]) -> list[Sliced]:
    """Parts of one variable put together."""
    whole: dict[str, Sliced] = {}
    for part in parts:
        known = whole.get(part.name)
        slices = part.slices if known is None else (*known.slices, *part.slices)
        whole[part.name] = Sliced(part.name, slices, part.dtype, part.shape, part.sparse, part.adds, part.ids)
    return list(whole.values())


def _parts(op: Operator) -> Iterable[tuple[str, int, int]]:
    """The inputs of a concat, and which rows of its output they are."""
    heights = [_variable(op, name).shape[0] for name in op.input("X")]
    return ((name, begin, end) for name, (begin, end) in zip(op.input("X"), _ranges(heights), strict=True))


def _ranges(heights: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([0, *accumulate(heights)]))


def _variable(op: Operator, name: str) -> Variable:
    found = op.block.find_var_recursive(name)
    assert found is not None, f"{op.type} names {name}, which its program does not have"
    return found
