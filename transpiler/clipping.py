"""Clipping by norm on servers: norms of gradients whose slices live on several servers.

A sum over a slice, or over the parameters of one server, is a part of the sum that is meant. Before anything but a
further sum may read it, the parts of all servers are added up: that is server_sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from refluid.ir import OP_NAMESCOPE, OP_ROLE, OP_ROLE_VAR, Operator, Program, Variable, VarType
from refluid.transpiler.parts import Parts, is_number, take_apart
from refluid.transpiler.placement import Placement


@dataclass(frozen=True)
class Clipping:
    """What must be computed from gradients before any parameter is updated.

    Fields: by level, the operators that find it, each level after the sums over servers of the level before; the
    variables that are such sums; the servers that take part.
    """

    levels: tuple[tuple[Operator, ...], ...]
    totals: frozenset[str]
    servers: tuple[str, ...]


NO_CLIPPING = Clipping((), frozenset(), ())


def total_name(name: str) -> str:
    """The name of the sum over all servers of the variable ``name``."""
    return f"{name}@TOTAL"


def plan_clipping(parts: Parts, placement: Placement) -> Clipping:
    """Decides which operators run before all updates, and which of their results are summed over servers."""
    totals = _totals(parts, placement)
    early, flow = _early(parts, totals), parts.flow
    levels: list[list[Operator]] = []
    known: dict[str, int] = {}
    for op in early:
        level = max((known.get(name, 0) + (name in totals) for name in flow.reads(op)), default=0)
        known.update(dict.fromkeys(flow.writes(op), level))
        while len(levels) <= level:
            levels.append([])
        levels[level].append(op)
    owners = {parts.owner(name) for op in early for name in flow.reads(op) | flow.writes(op)} - {None}
    holding = {endpoint for placed in placement.params if placed.param in owners for endpoint in placed.endpoints}
    servers = tuple(endpoint for endpoint in placement.endpoints if endpoint in holding)
    return Clipping(tuple(map(tuple, levels)), frozenset(totals), servers)


def _totals(parts: Parts, placement: Placement) -> set[str]:
    """Names of partial sums that something other than a sum reads."""
    rows = _names_with_rows(parts, placement)
    part, totals = set[str](), set[str]()
    for op in parts.between:
        names, written = parts.flow.reads(op), parts.flow.writes(op)
        owners = {owner for owner in map(parts.owner, names | written) if owner is not None}
        holding = {endpoint for owner in owners for endpoint in placement.of(owner).endpoints}
        if len(owners) > 1 and len(holding) > 1:
            if op.type != "sum" or not all(is_number(op.block, name) for name in names):
                raise op.error(
                    "it combines gradients of several parameters that live on different servers",
                    hint="only sums of scalars, as in GradientClipByGlobalNorm, can be computed across servers",
                )
            part |= written
        elif (op.definition.slices == "sum" and names & rows) or (op.type == "sum" and names <= part):
            part |= written
        else:
            totals |= names & part
            rows = rows | written if names & rows else rows - written
    return totals


def _names_with_rows(parts: Parts, placement: Placement) -> set[str]:
    """The variables that servers hold slices of."""
    names = set[str]()
    for update in parts.updates:
        if len(placement.of(update.param.name).slices) > 1:
            block, rows = update.param.block, update.param.shape[0]
            kept = (update.param.name, update.grad, *update.states)
            names |= {name for name in kept if block.var(name).shape[:1] == (rows,)}
    return names


def _early(parts: Parts, totals: Collection[str]) -> list[Operator]:
    """The shared operators, those that compute totals, and everything these depend on, in order."""
    shared, wanted, found = {id(op) for op in parts.shared}, set(totals), []
    for op in reversed(parts.between):
        if id(op) in shared or parts.flow.writes(op) & wanted:
            found.append(op)
            wanted |= parts.flow.reads(op)
    return found[::-1]


def spell_out_norms(program: Program, params: Collection[str]) -> Program:
    """A copy in which clip_by_norm of these parameters' gradients is expanded into sums and products."""
    program = program.clone()
    parts = take_apart(program)
    for update in parts.updates:
        for op in update.ops:
            if op.type == "clip_by_norm" and update.param.name in params:
                _spell_out(op)
    return program


def _spell_out(op: Operator) -> None:
    """x * limit / max(limit, sqrt(sum(x * x)))"""
    block, (source,), (out,) = op.block, op.input("X"), op.output("Out")
    x = block.var(source)
    place = op.idx
    attrs = {name: op.attrs[name] for name in (OP_ROLE, OP_ROLE_VAR, OP_NAMESCOPE) if name in op.attrs}
    del block.ops[place]

    def append(type: str, inputs: Mapping[str, str], suffix: str, dims: tuple[int, ...] = (1,), **more: Any) -> str:
        nonlocal place
        name = f"{out}.{suffix}" if suffix else out
        if name not in block.vars:
            block.vars[name] = Variable(block, name=name, shape=dims, dtype=x.dtype)
        block.insert_op(place, type=type, inputs=inputs, outputs={"Out": name}, attrs={**attrs, **more})
        place += 1
        return name

    values = source
    if x.type == VarType.SELECTED_ROWS:
        values = source = append("merge_selected_rows", {"X": source}, "merged", x.shape)
        values = append("get_tensor_from_selected_rows", {"X": source}, "values", x.shape)
    squares = append("square", {"X": values}, "square", x.shape)
    length = append("sqrt", {"X": append("reduce_sum", {"X": squares}, "sum", reduce_all=True)}, "norm")
    limit = append("fill_constant", {}, "limit", shape=[1], dtype=int(x.dtype), value=op.attr("max_norm"))
    longest = append("elementwise_max", {"X": limit, "Y": length}, "max")
    factor = append("elementwise_div", {"X": limit, "Y": longest}, "factor")
    append("elementwise_mul", {"X": source, "Y": factor}, "", x.shape)
