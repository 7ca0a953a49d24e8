"""Which updates of a server are updates of single rows, read from its operators.

The operators between a pushed gradient and the optimizer (averages, clipping, weight decay) become the rule of a table.
What they need of other parameters, a learning rate and a factor, stays an operator of the compiled update: it is fed
the table's part of a norm, and says what to multiply gradients by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from refluid.ir.operator import Operator
from refluid.runtime.tables.rules import OPTIMIZERS, Rule

_POWERS = ("Beta1Pow", "Beta2Pow")


@dataclass(frozen=True)
class TableUpdate:
    """How one table is updated.

    Attributes:
      param: the table's variable.
      pushed: the name that its gradients are pushed under.
      rule: what is done with them.
      states: by input slot of the optimizer, the variables of its states.
      powers: those of its powers of beta, which count steps.
      rate: the variable of the learning rate; None for optimizers without one.
      factor: the variable that gradients are multiplied by, if any.
      squares: the variable that takes the sum of the squares of the averaged gradients, if any.
    """

    param: str
    pushed: str
    rule: Rule
    states: Mapping[str, str]
    powers: Mapping[str, str]
    rate: str | None
    factor: str | None = None
    squares: str | None = None


@dataclass
class _Reading:
    """One update while it is read: what has been found, and the operators that it takes the place of."""

    rule: Rule
    factor: str | None = None
    squares: str | None = None
    scales: list[float] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # the gradient, in all of its forms before weight decay
    taken: set[int] = field(default_factory=set)  # ids of operators


class NotRowByRowError(ValueError):
    """An update that rows cannot do one by one."""


def read_table_update(
    ops: Sequence[Operator], param: str, pushed: str, received: Set[str]
) -> tuple[TableUpdate, set[int]]:
    """The update of a table, and the operators (by id) that it takes the place of.

    Args:
      ops: of all blocks, in order.
      pushed: the name that the table's gradients are pushed under.
      received: the variables that receive them.

    Raises:
      NotRowByRowError: something is done with the gradients that needs all of them.
    """
    adds = next((op for op in ops if _adds_changes(op, param, received)), None)
    if adds is not None:
        return TableUpdate(param, pushed, Rule("add", {}), {}, {}, None), {id(adds)}
    place, op = next(
        ((i, op) for i, op in enumerate(ops) if op.type in OPTIMIZERS and op.input("Param") == [param]), (0, None)
    )
    if op is None:
        raise NotRowByRowError(f"{param} is updated by something else than {', '.join(OPTIMIZERS)}")
    reading = _follow(ops[:place], op.input("Grad")[0], param, received, Rule(op.type, dict(op.attrs)))
    form = OPTIMIZERS[op.type]
    states = {slot: op.input(slot)[0] for slot in form.states if op.input(slot)}
    powers = {slot: op.input(slot)[0] for slot in _POWERS if op.input(slot)}
    rate = op.input("LearningRate")[0] if op.input("LearningRate") else None
    advances = {id(each) for each in ops if powers and set(each.output_arg_names) <= set(powers.values())}
    update = TableUpdate(param, pushed, reading.rule, states, powers, rate, reading.factor, reading.squares)
    return update, reading.taken | advances | {id(op)}


def _adds_changes(op: Operator, param: str, received: Set[str]) -> bool:
    """Whether an operator adds what trainers push to the table, as in GEO training."""
    first, *others = op.input("X") or [""]
    return op.type == "sum" and op.output("Out") == [param] == [first] and len(others) == 1 and others[0] in received


def _follow(before: Sequence[Operator], name: str, param: str, received: Set[str], rule: Rule) -> _Reading:
    """Follows a gradient from the optimizer back to what is received."""
    reading, decays, place = _Reading(rule), True, len(before)
    while name not in received:
        place = _last_writer(before[:place], name)
        if place < 0:
            raise NotRowByRowError(f"{name} is computed from something else than what is pushed")
        op = before[place]
        reading.taken.add(id(op))
        if decays and _is_decay(op, before[:place], param, reading):
            name = op.input("X")[0]
            continue
        decays = False
        reading.names.update((*op.input("X"), *op.output("Out")))
        name = _through(op, reading, received)
    reading.names.add(name)
    reading.rule = replace(reading.rule, scale=math.prod(reading.scales))
    _find_squares(before, reading)
    return reading


def _through(op: Operator, reading: _Reading, received: Set[str]) -> str:
    """The gradient before an operator that changes it."""
    source, *others = op.input("X")
    if op.type == "sum" and set(op.input("X")) <= received:
        if reading.scales:
            reading.scales.pop()  # that of the average; how many pushes there are is known later
        return source
    plain = reading.factor is None and reading.rule.highest == math.inf
    if not others and op.type == "merge_selected_rows":
        return source
    if not others and op.type == "scale" and not op.attrs.get("bias"):
        reading.scales.append(float(op.attrs.get("scale", 1.0)))
        return source
    if not others and op.type == "elementwise_mul" and plain:
        reading.factor = op.input("Y")[0]
        return source
    if not others and op.type == "clip" and plain:
        reading.rule = replace(reading.rule, lowest=float(op.attr("min")), highest=float(op.attr("max")))
        return source
    raise NotRowByRowError(f"{op.type} changes its gradient ({op.written_at})")


def _is_decay(op: Operator, before: Sequence[Operator], param: str, reading: _Reading) -> bool:
    """Whether a sum adds weight decay to the gradient."""
    if op.type != "sum" or len(op.input("X")) != 2:
        return False
    place = _last_writer(before, op.input("X")[1])
    if place < 0 or before[place].type != "scale" or before[place].attrs.get("bias"):
        return False
    scale = before[place]
    (source,), amount = scale.input("X"), float(scale.attrs.get("scale", 1.0))
    if source == param:
        reading.rule = replace(reading.rule, l2=amount)
        reading.taken.add(id(scale))
        return True
    sign = before[_last_writer(before[:place], source)]
    if sign.type != "sign" or sign.input("X") != [param] or sign.output("Out") != [source]:
        return False
    reading.rule = replace(reading.rule, l1=amount)
    reading.taken |= {id(scale), id(sign)}
    return True


def _last_writer(ops: Sequence[Operator], name: str) -> int:
    """The position of the last operator that writes a variable, or -1."""
    return next((place for place in reversed(range(len(ops))) if name in ops[place].output_arg_names), -1)


def _find_squares(before: Sequence[Operator], reading: _Reading) -> None:
    """Finds the sum of squares that other operators make of the gradient; they must make nothing else of it."""
    forms, squares = set(reading.names), set[str]()
    for op in before:
        if id(op) in reading.taken or not forms.intersection(op.input_arg_names) | squares.intersection(op.input("X")):
            continue
        if op.type in ("merge_selected_rows", "get_tensor_from_selected_rows"):
            forms.update(op.output("Out"))
        elif op.type == "square":
            squares.update(op.output("Out"))
        elif (op.type == "reduce_sum" and squares.intersection(op.input("X"))) or op.type == "squared_l2_norm":
            reading.squares = op.output("Out")[0]
        else:
            raise NotRowByRowError(f"{op.type} needs all of its gradient ({op.written_at})")
        reading.taken.add(id(op))
