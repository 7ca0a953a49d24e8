"""Variables of trainers that must start alike: frozen parameters, moving averages of batch_norm and so on.

Servers do not train them. They hold the values of trainer 0, or loaded ones, until every trainer has started.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle

from refluid.ir import Parameter, Program, Variable
from refluid.ir.slices import Slice
from refluid.transpiler.dataflow import Flow
from refluid.transpiler.parts import Parts
from refluid.transpiler.placement import Placed


def place_kept(program: Program, startup: Program, parts: Parts, endpoints: Sequence[str]) -> tuple[Placed, ...]:
    """The variables whose initial values trainers share, and the server of each; the largest are placed first."""
    found = sorted(_kept(program, startup, parts), key=lambda variable: (-math.prod(variable.shape), variable.name))
    return tuple(
        Placed(v.name, (Slice(v.name, v.name, 0, v.shape[0], tuple(v.shape), endpoint),), v.dtype)
        for v, endpoint in zip(found, cycle(endpoints), strict=False)
    )


def _kept(program: Program, startup: Program, parts: Parts) -> list[Variable]:
    flow = Flow(startup.global_block().ops)
    moved = {update.param.name for update in parts.updates}
    moved |= {name for op in parts.updating for name in parts.flow.reads(op) | parts.flow.writes(op)}
    used = {name for op in parts.rest for name in parts.flow.reads(op) | parts.flow.writes(op)}
    return [
        variable
        for name, variable in program.global_block().vars.items()
        if name in used - moved and variable.persistable and flow.writers(name) and _may_differ(variable, flow)
    ]


def _may_differ(variable: Variable, flow: Flow) -> bool:
    """Whether two processes may start with different values: random ones, or values from an earlier run."""
    if not variable.shape or any(size <= 0 for size in variable.shape):
        return False
    makers = flow.behind({variable.name})
    return isinstance(variable, Parameter) or any(i.definition.random for op in makers for i in op.within())
