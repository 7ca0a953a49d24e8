"""Averages of parameters over training, to evaluate with instead of the latest values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paddle.fluid import layers
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.optimizer.base import Optimizer
from refluid.ir import Program, Variable, default_main_program, name_scope, program_guard, unique_name

_EMA_STEP = "@EMA_STEP_COUNTER@"


class _Averaged:
    """Parameters that two small programs swap for their averages and back."""

    apply_program: Program
    restore_program: Program

    @contextmanager
    def apply(self, executor: Any, need_restore: bool = True) -> Iterator[None]:
        """Replaces parameters by their averages inside the context; restores them afterwards if ``need_restore``."""
        executor.run(self.apply_program)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Any) -> None:
        """Restores the original parameters."""
        executor.run(self.restore_program)

    def _write_restore_program(self, kept: Sequence[tuple[Variable, Variable]]) -> None:
        self.restore_program = Program()
        with program_guard(self.restore_program):
            block = self.restore_program.global_block()
            for param, backup in kept:
                layers.assign(input=block._clone_variable(backup), output=block._clone_variable(param))


def _backup(param: Variable, name: str) -> Variable:
    """Creates the variable that keeps a parameter's value while its average is in place."""
    return param.block.create_var(
        name=unique_name.generate(name), dtype=param.dtype, persistable=False, stop_gradient=True
    )


class ModelAverage(_Averaged, Optimizer):
    """Averages parameters over a window of recent updates; create it after `minimize`.

    The window is ``average_window_rate`` times the number of updates, clamped between ``min_average_window`` and
    ``max_average_window``.
    """

    type = "average_accumulates"
    attributes = {
        "average_window": "average_window",
        "min_average_window": "min_average_window",
        "max_average_window": "max_average_window",
    }

    def __init__(
        self, average_window_rate, min_average_window=10000, max_average_window=10000, regularization=None, name=None
    ):
        super().__init__(0.0, regularization, name)
        self.average_window = average_window_rate
        self.min_average_window, self.max_average_window = min_average_window, max_average_window
        self.helper = LayerHelper(self.__class__.__name__)
        self.params_grads = [
            (param, _backup(param, f"{param.name}.tmp"))
            for param in default_main_program().global_block().all_parameters()
            if param.do_model_average is not False
        ]
        for param, backup in self.params_grads:
            with param.block.program._optimized_guard([param, backup]), name_scope("move_average"):
                self._append_average_accumulate_op(param)
        self._write_apply_program()
        self._write_restore_program(self.params_grads)

    def _append_average_accumulate_op(self, param: Variable) -> None:
        states = {name: self._add_accumulator(name, param) for name in ("sum_1", "sum_2", "sum_3")}
        for name in ("num_accumulates", "old_num_accumulates", "num_updates"):
            states[name] = self._add_accumulator(name, param, dtype="int64", shape=[1])
        default_main_program().global_block().append_op(
            type=self.type,
            inputs={"param": param, **{f"in_{name}": variable for name, variable in states.items()}},
            outputs={f"out_{name}": variable for name, variable in states.items()},
            attrs=self._attrs(param),
        )

    def _write_apply_program(self) -> None:
        self.apply_program = Program()
        block = self.apply_program.global_block()
        with program_guard(self.apply_program):
            for param, backup in self.params_grads:
                here = block._clone_variable(param)
                layers.assign(input=here, output=block._clone_variable(backup))
                counts = [self._state(block, name, param) for name in ("num_accumulates", "old_num_accumulates")]
                sums = [self._state(block, name, param) for name in ("sum_1", "sum_2", "sum_3")]
                count, total = layers.sum(counts), layers.sum(sums)
                count, total = layers.cast(count, here.dtype), layers.cast(total, here.dtype)
                block.append_op(type="elementwise_div", inputs={"X": total, "Y": count}, outputs={"Out": here})

    def _state(self, block: Any, name: str, param: Variable) -> Variable:
        return block._clone_variable(self._get_accumulator(name, param))


class ExponentialMovingAverage(_Averaged):
    """Keeps ``decay * average + (1 - decay) * parameter`` of every trainable parameter; call `update` after `minimize`.

    Averages start at zero, so they are divided by 1 - decay^updates when they are applied.

    Args:
      decay: the decay rate of the average.
      thres_steps: a variable with the number of steps so far; limits the decay to (steps + 1) / (steps + 10).
      name: a prefix of the names of the averages.
    """

    def __init__(self, decay=0.999, thres_steps=None, name=None):
        self._decay, self._thres_steps = decay, thres_steps
        self._name = name or ""
        self._decay_var = self._decay_variable()
        self._params_tmps = [
            (param, _backup(param, f"{self._name}{param.name}.ema_tmp"))
            for param in default_main_program().global_block().all_parameters()
            if param.do_model_average is not False and param.trainable
        ]
        self._ema_vars: dict[str, Variable] = {}
        for param, backup in self._params_tmps:
            with param.block.program._optimized_guard([param, backup]), name_scope("moving_average"):
                self._ema_vars[param.name] = layers.create_global_var(
                    name=unique_name.generate(f"{self._name}{param.name}_ema"),
                    shape=list(param.shape),
                    value=0.0,
                    dtype=param.dtype,
                    persistable=True,
                )
        self._write_apply_program()
        self._write_restore_program(self._params_tmps)

    def _decay_variable(self) -> Variable:
        with default_main_program()._lr_schedule_guard():
            decay = layers.create_global_var(
                shape=[1], value=self._decay, dtype="float32", persistable=True, name="scheduled_ema_decay_rate"
            )
            if self._thres_steps is not None:
                # Step counters are int64. Real Fluid divides them as integers, which gives 0, and then uses ``decay``
                # (differs: ema-thres-steps).
                steps = layers.cast(self._thres_steps, "float32")
                grown = (steps + 1.0) / (steps + 10.0)
                # Fluid expresses this minimum as a Switch with two assignments.
                limit = layers.fill_constant(shape=[1], dtype="float32", value=self._decay)
                layers.assign(input=layers.elementwise_min(grown, limit), output=decay)
        return decay

    def update(self) -> None:
        """Appends the update of all averages, which runs with every training step."""
        layers.autoincreased_step_counter(counter_name=_EMA_STEP)
        for param, backup in self._params_tmps:
            with param.block.program._optimized_guard([param, backup]), name_scope("moving_average"):
                average = self._ema_vars[param.name]
                moved = average * self._decay_var + param * (1 - self._decay_var)
                layers.assign(input=moved, output=average)

    def _write_apply_program(self) -> None:
        self.apply_program = Program()
        block = self.apply_program.global_block()
        with program_guard(self.apply_program):
            share = self._bias_correction(block)
            for param, backup in self._params_tmps:
                here = block._clone_variable(param)
                layers.assign(input=here, output=block._clone_variable(backup))
                # Fluid divides the stored average in place, so applying it twice corrupts it; here it stays unchanged
                # (differs: ema-apply).
                average = block._clone_variable(self._ema_vars[param.name])
                layers.assign(input=average / share, output=here)

    def _bias_correction(self, block: Any) -> Variable:
        """Returns 1 - decay^updates, or 1 before the first update, when averages are still zero."""
        steps = layers.create_global_var(
            name=_EMA_STEP, shape=[1], value=0, dtype="int64", force_cpu=True, persistable=True
        )
        steps = layers.cast(steps, "float32")
        power = layers.elementwise_pow(block._clone_variable(self._decay_var), steps)
        begun = layers.cast(steps > 0.0, "float32")
        return 1.0 - power * begun
