"""Smaller files: the weights of a saved model as integers, for Paddle's library on phones, or rounded to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.fluid import io
from paddle.fluid.executor import Executor
from refluid.compression.weights import as_integers, scale_of, threshold_without
from refluid.ir import Operator, Program, as_dtype
from refluid.places import CPUPlace
from refluid.scope import Scope, scope_guard

__all__ = ["WeightQuantization"]


class WeightQuantization:
    """Stores the weights of a saved inference model with 8 or 16 bits.

    Args:
      model_dir, model_filename, params_filename: where the model is.
    """

    _supported_quantizable_op_type = ("conv2d", "depthwise_conv2d", "mul")
    _supported_weight_quantize_type = ("channel_wise_abs_max", "abs_max")

    def __init__(self, model_dir: str, model_filename: str | None = None, params_filename: str | None = None):
        self._model = (model_dir, model_filename, params_filename)

    def quantize_weight_to_int(
        self,
        save_model_dir: str,
        save_model_filename: str | None = None,
        save_params_filename: str | None = None,
        quantizable_op_type: Sequence[str] = ("conv2d", "mul"),
        weight_bits: int = 8,
        weight_quantize_type: str = "channel_wise_abs_max",
        generate_test_model: bool = False,
        threshold_rate: float = 0.0,
    ) -> None:
        """Saves the folder ``quantized_model``, for phones, and on demand ``test_model``, with rounded weights.

        Args:
          save_model_dir: holds both folders.
          save_model_filename, save_params_filename: names of files in them.
          quantizable_op_type: the operators whose weights are quantised.
          weight_bits: 8 or 16.
          weight_quantize_type: one scale for each output channel (``channel_wise_abs_max``) or for a whole weight.
          generate_test_model: whether to save a model that runs here and shows what rounding costs.
          threshold_rate: the share of the largest elements that ``abs_max`` clips.
        """
        for type in quantizable_op_type:
            known = type in self._supported_quantizable_op_type
            assert known, f"Input error:{type} is not supported for weight quantization."
        assert weight_bits in (8, 16), "Input error: weight_bits should be 8 or 16."
        kinds = self._supported_weight_quantize_type
        assert weight_quantize_type in kinds, f"Input error: weight_quantize_type should in {list(kinds)}"
        by_channel = weight_quantize_type == "channel_wise_abs_max"
        names = (save_model_filename, save_params_filename)
        for folder in ("quantized_model", "test_model")[: 1 + generate_test_model]:
            executor, scope = Executor(CPUPlace()), Scope()
            with scope_guard(scope):
                program, feeds, targets = io.load_inference_model(self._model[0], executor, *self._model[1:])
                for op, name in _weights(program, quantizable_op_type):
                    tensor = scope.var(name).get_tensor()
                    value = np.array(tensor)
                    integers, scales = _rounded(value, op.type == "mul", weight_bits, by_channel, threshold_rate)
                    stored = (integers * scales).astype(value.dtype) if folder == "test_model" else integers
                    tensor.set(stored, CPUPlace())
                    op.block._var_recursive(name).dtype = as_dtype(stored.dtype)
                    op.set_attr("quantization_type", f"post_weight_{weight_quantize_type}")
                    op.set_attr("quantize_weight_bits", weight_bits)
                    op.set_attr(f"{name}_quant_scale", [float(scale) for scale in scales.reshape(-1)])
                target = os.path.join(save_model_dir, folder)
                io.save_inference_model(target, feeds, targets, executor, program, *names)


def _weights(program: Program, types: Sequence[str]) -> list[tuple[Operator, str]]:
    """Operators with their weights. A weight that several operators read counts once."""
    found: dict[str, Operator] = {}
    for block in program.blocks:
        for op in block.ops:
            for name in op.input_arg_names if op.type in types else ():
                variable = block.find_var_recursive(name)
                if variable is not None and variable.persistable:
                    found.setdefault(name, op)
    return [(op, name) for name, op in found.items()]


def _rounded(value: np.ndarray, by_column: bool, bits: int, by_channel: bool, rate: float) -> tuple[Any, np.ndarray]:
    """Integers, and what one of them stands for: one number, or one for each channel."""
    weight = value.T if by_column and by_channel else value
    scale = scale_of(weight, by_channel) if by_channel or not rate else threshold_without(weight, rate)
    integers = as_integers(weight, scale, bits).astype(f"int{bits}")
    shape = [-1] + [1] * (weight.ndim - 1)
    unit = np.reshape(np.asarray(scale, value.dtype) / (2 ** (bits - 1) - 1), shape if by_channel else [1] * value.ndim)
    return (integers.T, unit.T) if by_column and by_channel else (integers, unit)
