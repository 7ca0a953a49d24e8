"""Learning rate schedules, computed by ops of the training program.

Steps are counted in ``@LR_DECAY_COUNTER@``, which every run increments first. Where Fluid selects a value with a
Switch (piecewise_decay, linear_lr_warmup, polynomial_decay with cycle), these schedules sum all values, each
weighted by one or zero: the same numbers without branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from paddle.fluid import layers
from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable, default_main_program
from refluid.ops.jax_call import JaxCall

__all__ = [
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "linear_lr_warmup",
    "natural_exp_decay",
    "noam_decay",
    "piecewise_decay",
    "polynomial_decay",
]

_COUNTER = "@LR_DECAY_COUNTER@"


def _schedule(build: Callable[..., Variable]) -> Callable[..., Variable]:
    """Marks the appended ops as learning rate ops: transpilers move them, and test programs drop them."""

    @wraps(build)
    def scheduled(*args: Any, **options: Any) -> Variable:
        with default_main_program()._lr_schedule_guard():
            return build(*args, **options)

    return scheduled


def _decay_step_counter(begin: int = 0) -> Variable:
    """Returns the number of the current run as float32, starting at ``begin``."""
    step = layers.autoincreased_step_counter(counter_name=_COUNTER, begin=begin, step=1)
    return layers.cast(step, "float32")


@_schedule
def noam_decay(d_model: int, warmup_steps: int, learning_rate: float = 1.0) -> Variable:
    """Increases linearly for ``warmup_steps``, then decays with the inverse square root of the step, as in Noam."""
    step = _decay_step_counter(1)
    falling = step**-0.5
    growing = (warmup_steps**-1.5) * step
    return learning_rate * (d_model**-0.5) * layers.elementwise_min(falling, growing)


@_schedule
def exponential_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> Variable:
    """learning_rate * decay_rate ^ (step / decay_steps); ``staircase`` uses integer powers only."""
    return learning_rate * (decay_rate ** _periods(decay_steps, staircase))


@_schedule
def natural_exp_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> Variable:
    """learning_rate * e ^ (-decay_rate * step / decay_steps); ``staircase`` uses whole periods only."""
    return learning_rate * layers.exp(-1 * decay_rate * _periods(decay_steps, staircase))


@_schedule
def inverse_time_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> Variable:
    """learning_rate / (1 + decay_rate * step / decay_steps); ``staircase`` uses whole periods only."""
    return learning_rate / (1 + decay_rate * _periods(decay_steps, staircase))


def _periods(decay_steps: int, staircase: bool) -> Variable:
    periods = _decay_step_counter() / decay_steps
    return layers.floor(periods) if staircase else periods


@_schedule
def polynomial_decay(
    learning_rate: float, decay_steps: int, end_learning_rate: float = 0.0001, power: float = 1.0, cycle: bool = False
) -> Variable:
    """Decays from learning_rate to end_learning_rate in ``decay_steps``; ``cycle`` repeats the decay."""
    step = _decay_step_counter()
    if cycle:
        rounds = layers.ceil(step / decay_steps)
        zero = layers.fill_constant(shape=[1], dtype="float32", value=0.0)
        one = layers.fill_constant(shape=[1], dtype="float32", value=1.0)
        rounds = _first_true([(layers.equal(step, zero), one)], rounds)
        share = step / (rounds * decay_steps)
    else:
        last = layers.fill_constant(shape=[1], dtype="float32", value=float(decay_steps))
        share = layers.elementwise_min(x=step, y=last) / decay_steps
    return (learning_rate - end_learning_rate) * ((1 - share) ** power) + end_learning_rate


@_schedule
def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Variable:
    """values[0] before step boundaries[0], values[1] before boundaries[1], ..., then the last value."""
    if len(values) - len(boundaries) != 1:
        raise ValueError(
            f"piecewise_decay: expected one more value than boundaries, got {len(values)} and {len(boundaries)}"
        )
    rate = _rate_variable("learning_rate")
    step = _decay_step_counter()
    cases = [(layers.less_than(step, _constant(b)), _constant(v)) for b, v in zip(boundaries, values[:-1], strict=True)]
    layers.assign(_first_true(cases, _constant(values[-1])), output=rate)
    return rate


@_schedule
def cosine_decay(learning_rate: float, step_each_epoch: int, epochs: int) -> Variable:
    """Decays along half a cosine over ``epochs``, once per epoch."""
    epoch = layers.floor(_decay_step_counter() / step_each_epoch)
    return learning_rate * 0.5 * (layers.cos(epoch * math.pi / epochs) + 1)


@_schedule
def linear_lr_warmup(learning_rate: float | Variable, warmup_steps: int, start_lr: float, end_lr: float) -> Variable:
    """Increases from start_lr to end_lr in ``warmup_steps``; then follows ``learning_rate``, a number or a schedule."""
    if isinstance(learning_rate, int):
        learning_rate = float(learning_rate)
    rate = _rate_variable("learning_rate_warmup", dtype=getattr(learning_rate, "dtype", "float32"))
    step = _decay_step_counter()
    growing = start_lr + (end_lr - start_lr) * (step / float(warmup_steps))
    later = learning_rate if isinstance(learning_rate, Variable) else _constant(learning_rate)
    layers.assign(_first_true([(step < float(warmup_steps), growing)], later), output=rate)
    return rate


def _rate_variable(name: str, dtype: Any = "float32") -> Variable:
    return layers.create_global_var(shape=[1], value=0.0, dtype=dtype, persistable=True, name=name)


def _constant(value: float) -> Variable:
    return layers.fill_constant(shape=[1], dtype="float32", value=float(value))


def _first_true(cases: Sequence[tuple[Variable, Variable]], otherwise: Variable) -> Variable:
    """Returns the value of the first true case: each is added with weight one or zero, which is exact."""
    left = None
    parts = []
    for condition, value in cases:
        chosen = condition if left is None else layers.logical_and(left, condition)
        parts.append(layers.elementwise_mul(value, layers.cast(chosen, "float32")))
        missed = layers.logical_not(condition)
        left = missed if left is None else layers.logical_and(left, missed)
    if left is None:
        return otherwise
    parts.append(layers.elementwise_mul(otherwise, layers.cast(left, "float32")))
    return layers.sums(parts)


@_schedule
def scheduled_rate(schedule: Callable[[Any], Any]) -> Variable:
    """The value of an optax schedule, a function of the number of steps before this one."""
    step = layers.cast(layers.autoincreased_step_counter(counter_name=_COUNTER, begin=0, step=1), "int32")
    helper = LayerHelper("learning_rate")
    rate = helper.create_variable_for_type_inference("float32", stop_gradient=True)
    attrs = {"call": JaxCall.of_number(schedule)}
    helper.append_op(type="jax_call", inputs={"X": step}, outputs={"Out": rate}, attrs=attrs)
    return rate
