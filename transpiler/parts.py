"""The parts of a training program: the update of each parameter, the learning-rate schedule, and the rest.

An update op (sgd, adam, ...) belongs to one parameter, and so does all that leads from the parameter's gradient to it:
its own clipping, its regularisation. What leads to several updates is shared: the sum of squares behind a global norm.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from refluid.ir import Block, Operator, OpRole, Parameter, Program, Variable
from refluid.transpiler.dataflow import Flow

_UPDATING = OpRole.Optimize | OpRole.LRSched


@dataclass(frozen=True, eq=False)
class Update:
    """The update of one parameter."""

    param: Variable
    grad: str  # as the backward pass computes it
    optimizer: Operator
    states: tuple[str, ...]  # persistable variables that only this update uses
    ops: tuple[Operator, ...] = ()  # in order, the optimizer among them
    sliceable: bool = False  # whether the rows of the parameter can be updated apart from each other


@dataclass(frozen=True)
class Parts:
    """The parts of a training program."""

    updates: tuple[Update, ...]  # by name of the parameter
    schedule: tuple[Operator, ...]  # learning rates
    shared: tuple[Operator, ...]  # what several updates need in addition
    between: tuple[Operator, ...]  # shared and updates, in order
    rest: tuple[Operator, ...]  # forward, backward, and operators that only read parameters
    flow: Flow  # of the whole block
    _owners: dict[str, str]

    @property
    def updating(self) -> tuple[Operator, ...]:
        """All operators that updates depend on."""
        return (*self.schedule, *self.between)

    def owner(self, name: str) -> str | None:
        """The parameter that a variable belongs to: it has its rows, or only its update uses it."""
        return self._owners.get(name)


def take_apart(program: Program) -> Parts:
    """Splits a training program into its parts."""
    block = program.global_block()
    flow = Flow(block.ops)
    optimizers = [op for op in block.ops if _is_update(op)]
    if not optimizers:
        raise ValueError("the program updates no parameter; call minimize before transpile")
    involved = flow.behind({name for op in optimizers for name in flow.reads(op)}, _candidates(flow, block))
    updates = _updates(optimizers, involved, flow, block)
    _check_known(involved, updates, flow, block)
    schedule = _schedule(updates, involved, flow)
    made_early = {id(op) for op in schedule}
    between = [op for op in involved if id(op) not in made_early]
    owners, shared, belongs = _share_out(between, updates, flow)
    updates = [
        replace(u, ops=tuple(ops), sliceable=_is_sliceable(ops, owners, u.param))
        for u in updates
        for ops in [belongs[u.param.name]]
    ]
    moved = {id(op) for op in involved}
    return Parts(
        tuple(sorted(updates, key=lambda update: update.param.name)),
        tuple(schedule),
        tuple(shared),
        tuple(between),
        tuple(op for op in block.ops if id(op) not in moved or not op.role & _UPDATING),
        flow,
        owners,
    )


def _is_update(op: Operator) -> bool:
    named = op.input("Param") and op.input("Grad") and op.output("ParamOut")
    return bool(named and op.role & OpRole.Optimize)


def _candidates(flow: Flow, block: Block) -> list[Operator]:
    """Operators that may run on servers: those of optimizers and schedules, and operators without a role that compute
    a schedule, as long as they need no data."""
    found, free = [], set[str]()
    for op in flow.ops:
        if op.role & _UPDATING:
            found.append(op)
        elif not op.role & OpRole.Backward and all(n in free or _is_kept(block, n) for n in flow.reads(op)):
            found.append(op)
            free |= flow.writes(op)
        else:
            free -= flow.writes(op)
    return found


def _is_kept(block: Block, name: str) -> bool:
    variable = block.find_var_recursive(name)
    return variable is not None and variable.persistable and not isinstance(variable, Parameter)


def _updates(optimizers: Sequence[Operator], involved: Sequence[Operator], flow: Flow, block: Block) -> list[Update]:
    announced = _announced_gradients(flow)
    readers = Counter(name for op in optimizers for name in set(op.input_arg_names))
    found: dict[str, Update] = {}
    for op in optimizers:
        param = block.var(op.input("Param")[0])
        if len(op.input("Param")) > 1:
            raise op.error(
                f"servers cannot update these parameters apart from each other: {op.attrs['update'].reason}",
                hint="to clip by a norm of all gradients, pass grad_clip=fluid.clip.GradientClipByGlobalNorm(...)",
            )
        if param.name in found:
            raise op.error(f"{param.name} is updated by more than one op, which cannot be distributed")
        common = {name for slot in ("Param", "Grad", "LearningRate") for name in op.input(slot)}
        states = [
            name
            for name in dict.fromkeys(op.input_arg_names)
            if name not in common and readers[name] == 1 and block.var(name).persistable
        ]
        grad = announced.get(param.name) or _find_gradient(op, param, involved, flow, block)
        found[param.name] = Update(param, grad, op, tuple(states))
    return list(found.values())


def _announced_gradients(flow: Flow) -> dict[str, str]:
    """The gradients that backward ops declare for parameters, and that updates read."""
    read = {name for op in flow.ops if op.role & _UPDATING for name in flow.reads(op)}
    found = {}
    for op in flow.ops:
        if op.role & OpRole.Backward:
            made = flow.writes(op) & read
            pairs = zip(op.role_var[::2], op.role_var[1::2], strict=False)
            found.update({param: grad for param, grad in pairs if grad in made})
    return found


def _find_gradient(op: Operator, param: Variable, involved: Sequence[Operator], flow: Flow, block: Block) -> str:
    """The gradient of a parameter for which no backward op declares one: what its update depends on."""
    made = {name for each in flow.ops if not each.role & _UPDATING for name in flow.writes(each)}
    read = {*op.input("Grad"), *(n for each in flow.behind(op.input("Grad"), involved) for n in flow.reads(each))}
    candidates = sorted(name for name in read & made if _looks_like(block.find_var_recursive(name), param))
    if param.name + "@GRAD" in candidates:
        return param.name + "@GRAD"
    if len(candidates) == 1:
        return candidates[0]
    raise op.error(
        f"cannot tell which variable is the gradient of {param.name}; candidates: {', '.join(candidates) or 'none'}"
    )


def _looks_like(variable: Variable | None, param: Variable) -> bool:
    return variable is not None and not variable.persistable and variable.shape == param.shape


def _check_known(involved: Sequence[Operator], updates: Sequence[Update], flow: Flow, block: Block) -> None:
    """Raises unless servers have everything that updates read: persistable, computed there, or a gradient."""
    known = {name for op in involved for name in flow.writes(op)} | {update.grad for update in updates}
    for op in involved:
        for name in sorted(flow.reads(op) - known):
            variable = block.find_var_recursive(name)
            if variable is None or not variable.persistable:
                raise op.error(
                    f"updates of parameters need {name}, which only trainers can compute",
                    hint="compute it from constants and persistable variables, or before the gradients",
                )


def _schedule(updates: Sequence[Update], involved: Sequence[Operator], flow: Flow) -> list[Operator]:
    """The operators that compute the inputs of updates other than gradients and states: the learning rates."""
    rates = {
        name
        for update in updates
        for slot, names in update.optimizer.inputs.items()
        if slot not in ("Param", "Grad")
        for name in names
        if name not in update.states
    }
    found = flow.behind(rates, [op for op in involved if op.role & OpRole.LRSched or not op.role & OpRole.Optimize])
    read = {name for op in found for name in flow.reads(op)}
    for update in updates:
        late = {update.param.name, update.grad, *update.states} & read
        if late:
            raise update.optimizer.error(f"its learning rate is computed from {', '.join(sorted(late))}")
    return found


def _share_out(
    between: Sequence[Operator], updates: Sequence[Update], flow: Flow
) -> tuple[dict[str, str], list[Operator], dict[str, list[Operator]]]:
    """The parameter of each variable; the operators of no or several parameters; the operators of each one."""
    owners = {name: u.param.name for u in updates for name in (u.param.name, u.grad, *u.states)}
    belongs: dict[str, list[Operator]] = {update.param.name: [] for update in updates}
    shared = []
    for op in between:
        own = {owners[name] for name in flow.reads(op) | flow.writes(op) if name in owners}
        if len(own) != 1:
            shared.append(op)
            continue
        (param,) = own
        belongs[param].append(op)
        owners.update(dict.fromkeys(flow.writes(op), param))
    return owners, shared, belongs


def _is_sliceable(ops: Sequence[Operator], owners: Mapping[str, str], param: Variable) -> bool:
    block = param.block
    for op in ops:
        if op.definition.slices not in ("rows", "sum", "norm"):
            return False
        if op.definition.slices == "sum" and not all(is_number(block, name) for name in op.output_arg_names):
            return False
        if not all(owners.get(name) == param.name or is_number(block, name) for name in op.input_arg_names):
            return False
    return True


def is_number(block: Block, name: str) -> bool:
    """Whether a variable has one element."""
    return math.prod(block.var(name).shape) == 1
