"""An optimizer that trains in mixed precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid import layers
from paddle.fluid.contrib.mixed_precision.fp16_lists import AutoMixedPrecisionLists
from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable, VarType, default_startup_program, program_guard, unique_name
from refluid.transpiler.mixed_precision import InsertCasts

__all__ = ["OptimizerWithMixedPrecision", "decorate"]

_HALVES = {"float16": VarType.FP16, "bfloat16": VarType.BF16}


def decorate(
    optimizer: Any,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 1.0,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = False,
    dtype: str = "float16",
) -> OptimizerWithMixedPrecision:
    """Returns an optimizer that computes parts of the program in 16 bits; parameters and updates stay in 32 bits.

    Args:
      optimizer: the optimizer to wrap.
      amp_lists: which ops compute in 16 bits.
      init_loss_scaling: the factor of the loss, which keeps small gradients from becoming zero in 16 bits.
      incr_every_n_steps: multiply the factor by ``incr_ratio`` after more than so many good steps.
      decr_every_n_nan_or_inf: multiply it by ``decr_ratio`` after more than so many steps with infinite gradients.
      use_dynamic_loss_scaling: let the factor change, and replace gradients that are not all finite by zeros.
      dtype: "float16" or, beyond Fluid, "bfloat16", which has the range of float32 and needs no loss scaling.
    """
    if dtype not in _HALVES:
        raise ValueError(f"dtype must be one of {', '.join(_HALVES)}, not {dtype!r}")
    changes = {
        "incr_every_n_steps": incr_every_n_steps,
        "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
        "incr_ratio": float(incr_ratio),
        "decr_ratio": float(decr_ratio),
    }
    lists = AutoMixedPrecisionLists() if amp_lists is None else amp_lists
    return OptimizerWithMixedPrecision(
        optimizer, lists, init_loss_scaling, use_dynamic_loss_scaling, **changes, dtype=dtype
    )


class OptimizerWithMixedPrecision:
    """The optimizer that `decorate` returns, where its arguments are described."""

    def __init__(
        self,
        optimizer: Any,
        amp_lists: AutoMixedPrecisionLists,
        init_loss_scaling: float,
        use_dynamic_loss_scaling: bool,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int,
        incr_ratio: float,
        decr_ratio: float,
        dtype: str = "float16",
    ):
        self._optimizer, self._amp_lists, self._half = optimizer, amp_lists, _HALVES[dtype]
        self._init_loss_scaling, self._use_dynamic_loss_scaling = init_loss_scaling, use_dynamic_loss_scaling
        self._changes = {
            "incr_every_n_steps": incr_every_n_steps,
            "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
            "incr_ratio": incr_ratio,
            "decr_ratio": decr_ratio,
        }
        self._loss_scaling: Variable | None = None
        self._scaled_loss: Variable | None = None
        self._steps: list[Variable] = []  # how many good ones, how many bad ones, without interruption

    def get_loss_scaling(self) -> Variable:
        """Returns the variable of the loss scaling."""
        return _after_backward(self._loss_scaling)

    def get_scaled_loss(self) -> Variable:
        """Returns the scaled loss, which backward starts from."""
        return _after_backward(self._scaled_loss)

    def backward(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Any:
        """Inserts casts, scales the loss and appends backward ops; the gradients it returns are scaled."""
        lists, program = self._amp_lists, loss.block.program
        startup = default_startup_program() if startup_program is None else startup_program
        casts = InsertCasts(lists.white_list, lists.black_list, lists.gray_list, lists.black_varnames, self._half)
        casts.apply(program)
        with program_guard(program, startup):
            if loss.dtype != VarType.FP32:
                loss = layers.cast(loss, "float32")
            self._loss_scaling = _state("loss_scaling", float(self._init_loss_scaling), "float32")
            if self._use_dynamic_loss_scaling:
                self._steps = [_state(f"num_{kind}_steps", 0, "int32") for kind in ("good", "bad")]
            self._scaled_loss = loss * self._loss_scaling
        return self._optimizer.backward(self._scaled_loss, startup, parameter_list, no_grad_set, callbacks)

    def apply_gradients(self, scaled_params_grads: Any) -> list[Any]:
        """Appends ops that restore the scale of the gradients, and the updates; returns the updates."""
        return self._optimizer.apply_gradients(self._unscaled(scaled_params_grads))

    def minimize(
        self,
        loss: Variable,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Any], Any]:
        """Appends everything; returns the updates and the (parameter, gradient) pairs."""
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        with program_guard(loss.block.program, startup_program):
            pairs = self._unscaled(pairs)
            return self._optimizer.apply_gradients(pairs), pairs

    def _unscaled(self, pairs: Any) -> list[Any]:
        scaling = self.get_loss_scaling()
        found = [(param, gradient) for param, gradient in pairs if gradient is not None]
        if self._use_dynamic_loss_scaling:
            return self._checked(found, scaling)
        results = []
        for param, gradient in found:
            with param.block.program._optimized_guard([param, gradient]):
                results.append((param, gradient / scaling))
        return results

    def _checked(self, pairs: list[Any], scaling: Variable) -> list[Any]:
        """Divides by the scale, and changes it if the gradients say so."""
        helper, (good, bad) = LayerHelper("loss_scaling"), self._steps
        gradients = [gradient for _, gradient in pairs]
        unscaled = [_beside(gradient) for gradient in gradients]
        infinite = helper.create_variable_for_type_inference("bool", stop_gradient=True)
        with scaling.block.program._optimized_guard([]):
            helper.append_op(
                type="check_finite_and_unscale",
                inputs={"X": gradients, "Scale": scaling},
                outputs={"Out": unscaled, "FoundInfinite": infinite},
            )
            helper.append_op(
                type="update_loss_scaling",
                inputs={
                    "X": unscaled,
                    "FoundInfinite": infinite,
                    "PrevLossScaling": scaling,
                    "InGoodSteps": good,
                    "InBadSteps": bad,
                },
                outputs={"Out": unscaled, "LossScaling": scaling, "OutGoodSteps": good, "OutBadSteps": bad},
                attrs=self._changes,
            )
        return [(param, gradient) for (param, _), gradient in zip(pairs, unscaled, strict=True)]


def _beside(gradient: Variable) -> Variable:
    return gradient.block.create_var(
        name=unique_name.generate("tmp"), shape=gradient.shape, dtype=gradient.dtype, type=gradient.type
    )


def _state(name: str, value: float, dtype: str) -> Variable:
    return layers.create_global_var(
        name=unique_name.generate(name), shape=[1], value=value, dtype=dtype, persistable=True
    )


def _after_backward(variable: Variable | None) -> Variable:
    if variable is None:
        raise RuntimeError("call minimize or backward first")
    return variable
