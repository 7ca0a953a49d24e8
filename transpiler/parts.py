"""The parts of a training program: what updates which parameter, what makes the learning rate, what stays behind.

An update op (sgd, adam, ...) belongs to one parameter, and so does all that leads from the parameter's gradient to it:
its own clipping, its regularisation. What leads to several updates is shared: the sum of squares behind a global norm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from refluid.ir import Operator, OpRole, Parameter, Program, Variable
from refluid.transpiler.dataflow import behind, reads, writes

_UPDATING = OpRole.Optimize | OpRole.LRSched

# Ops whose result, row by row, depends on the same row of their inputs only: they work on slices as on the whole.
ROW_WISE = frozenset(
    "abs adadelta adagrad adam adamax assign cast clip decayed_adagrad elementwise_add elementwise_div elementwise_max "
    "elementwise_min elementwise_mul elementwise_pow elementwise_sub exp fill_zeros_like ftrl "
    "get_tensor_from_selected_rows log merge_selected_rows momentum pow proximal_adagrad proximal_gd rmsprop scale sgd "
    "sigmoid sign sqrt square sum tanh".split()
)
# Ops that add up what they see: of slices they give parts of a sum.
SUMMING = frozenset({"reduce_sum", "squared_l2_norm"})
# Ops that the server programs spell out for slices.
SPELLED_OUT = frozenset({"clip_by_norm"})


@dataclass(frozen=True, eq=False)
class Update:
    """All that belongs to the update of one parameter."""

    param: Variable
    grad: str  # as the backward pass leaves it
    optimizer: Operator
    states: tuple[str, ...]  # persistable variables that only this update uses
    ops: tuple[Operator, ...] = ()  # in order, the optimizer among them
    sliceable: bool = False  # whether the rows of the parameter can be updated apart from each other


@dataclass(frozen=True)
class Parts:
    """A training program taken apart."""

    updates: tuple[Update, ...]  # by name of the parameter
    schedule: tuple[Operator, ...]  # learning rates
    shared: tuple[Operator, ...]  # what several updates need besides
    between: tuple[Operator, ...]  # shared and updates, in order
    rest: tuple[Operator, ...]  # forward, backward, and what only looks at parameters
    _owners: dict[str, str] = field(default_factory=dict)

    @property
    def updating(self) -> tuple[Operator, ...]:
        """All that leads to updates."""
        return (*self.schedule, *self.between)

    def owner(self, name: str) -> str | None:
        """The parameter whose rows a variable has, or whose update alone uses it."""
        return self._owners.get(name)


def take_apart(program: Program) -> Parts:
    """The parts of a training program."""
    block = program.global_block()
    optimizers = [op for op in block.ops if _is_update(op)]
    if not optimizers:
        raise ValueError("the program has no update of any parameter to distribute: call minimize before transpile")
    candidates = _candidates(program)
    involved = behind({name for op in optimizers for name in reads(op)}, candidates)
    updates = [_update(op, optimizers, involved, program) for op in optimizers]
    _check_known(involved, updates, program)
    schedule = _schedule(updates, involved)
    owners = {name: u.param.name for u in updates for name in (u.param.name, u.grad, *u.states)}
    belongs: dict[str, list[Operator]] = {update.param.name: [] for update in updates}
    shared = []
    for op in involved:
        if any(op is each for each in schedule):
            continue
        own = {owners[name] for name in reads(op) | writes(op) if name in owners}
        if len(own) == 1:
            (param,) = own
            belongs[param].append(op)
            owners.update(dict.fromkeys(writes(op), param))
        else:
            shared.append(op)
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
        tuple(op for op in involved if not any(op is each for each in schedule)),
        tuple(op for op in block.ops if id(op) not in moved or not op.role & _UPDATING),
        owners,
    )


def _is_sliceable(ops: Sequence[Operator], owners: Mapping[str, str], param: Variable) -> bool:
    block = param.block

    def is_number(name: str) -> bool:
        return math.prod(block._var_recursive(name).shape) == 1

    for op in ops:
        if op.type in SUMMING and not all(map(is_number, op.output_arg_names)):
            return False
        if op.type not in ROW_WISE | SUMMING | SPELLED_OUT:
            return False
        if not all(owners.get(name) == param.name or is_number(name) for name in op.input_arg_names):
            return False
    return True


def _is_update(op: Operator) -> bool:
    named = op.input("Param") and op.input("Grad") and op.output("ParamOut")
    return bool(named and op.role & OpRole.Optimize)


def _candidates(program: Program) -> list[Operator]:
    """Operators that may run where the parameters are: those of optimizers and schedules, and a schedule that was
    written without saying so, as long as it needs no data."""
    found, free = [], set[str]()
    block = program.global_block()
    for op in block.ops:
        if op.role & _UPDATING:
            found.append(op)
        elif op.role & OpRole.Backward:
            free -= writes(op)
        elif all(_is_kept(block.find_var_recursive(name)) or name in free for name in reads(op)):
            found.append(op)
            free |= writes(op)
        else:
            free -= writes(op)
    return found


def _is_kept(variable: Variable | None) -> bool:
    return variable is not None and variable.persistable and not isinstance(variable, Parameter)


def _update(op: Operator, optimizers: Sequence[Operator], involved: Sequence[Operator], program: Program) -> Update:
    block = program.global_block()
    param = block.var(op.input("Param")[0])
    if sum(other.input("Param") == op.input("Param") for other in optimizers) > 1:
        raise op.error(f"{param.name} is updated by more than one op; such a program cannot be distributed")
    elsewhere = {name for other in optimizers if other is not op for name in reads(other)}
    elsewhere |= {name for slot in ("Param", "Grad", "LearningRate") for name in op.input(slot)}
    kept = [name for name in dict.fromkeys(op.input_arg_names) if block.var(name).persistable and name not in elsewhere]
    return Update(param, _raw_gradient(op, involved, program), op, tuple(kept))


def _raw_gradient(op: Operator, involved: Sequence[Operator], program: Program) -> str:
    """The gradient that the backward pass made and that this update ends in."""
    block = program.global_block()
    param = block.var(op.input("Param")[0])
    made = {name for each in block.ops if not each.role & _UPDATING for name in writes(each)}
    read = {*op.input("Grad"), *(name for each in behind(op.input("Grad"), involved) for name in reads(each))}
    candidates = sorted(name for name in read & made if _looks_like(block.find_var_recursive(name), param))
    announced = [name for each in block.ops for name in _announced(each, param.name) if name in candidates]
    if param.name + "@GRAD" in candidates:
        return param.name + "@GRAD"
    if announced or len(candidates) == 1:
        return (announced or candidates)[-1]
    raise op.error(f"which variable is the gradient of {param.name} is not clear: {', '.join(candidates) or 'none is'}")


def _announced(op: Operator, param: str) -> list[str]:
    """The gradient of ``param`` that a backward op says it makes."""
    pairs = list(zip(op.role_var[::2], op.role_var[1::2], strict=False)) if op.role & OpRole.Backward else []
    return [grad for name, grad in pairs if name == param]


def _looks_like(variable: Variable | None, param: Variable) -> bool:
    return variable is not None and not variable.persistable and variable.shape == param.shape


def _check_known(involved: Sequence[Operator], updates: Sequence[Update], program: Program) -> None:
    """Everything an update reads must be on the servers: kept there, computed there, or a gradient that is sent."""
    block = program.global_block()
    known = {name for op in involved for name in writes(op)} | {update.grad for update in updates}
    for op in involved:
        for name in sorted(reads(op) - known):
            variable = block.find_var_recursive(name)
            if variable is None or not variable.persistable:
                raise op.error(
                    f"{name} is needed to update parameters, but only trainers have what it is computed from",
                    hint="compute it from constants and persistable variables, or before the gradients",
                )


def _schedule(updates: Sequence[Update], involved: Sequence[Operator]) -> list[Operator]:
    """The operators that make what updates read besides gradients and states: the learning rates."""
    rates = {
        name
        for update in updates
        for slot, names in update.optimizer.inputs.items()
        if slot not in ("Param", "Grad")
        for name in names
        if name not in update.states
    }
    found = behind(rates, [op for op in involved if op.role & OpRole.LRSched or not op.role & OpRole.Optimize])
    for update in updates:
        late = {update.param.name, update.grad, *update.states} & {name for op in found for name in reads(op)}
        if late:
            raise update.optimizer.error(f"its learning rate is computed from {', '.join(sorted(late))}")
    return found
