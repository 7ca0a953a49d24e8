"""Quantisation-aware training without graphs: a program is rewritten in place."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from paddle.fluid.initializer import Constant
from refluid.compression.weights import as_integers, scale_of
from refluid.ir import Program, default_main_program, default_startup_program
from refluid.scope import Scope, global_scope
from refluid.transpiler.quantization.fake_ops import Kind, Scheme
from refluid.transpiler.quantization.freezing import Freeze, StoreAsInt8, weights_of
from refluid.transpiler.quantization.training import QuantizeInputs

__all__ = ["QuantizeTranspiler"]

_QUANTIZABLE = ("conv2d", "depthwise_conv2d", "mul")
_KINDS = tuple(kind for kind in get_args(Kind) if kind != "channel_wise_abs_max")


class QuantizeTranspiler:
    """Trains a program with rounded weights and activations, and freezes it for inference with integers.

    Args:
      weight_bits, activation_bits: how many bits an element has.
      activation_quantize_type, weight_quantize_type: where scales come from: ``abs_max`` of the batch at hand,
        ``range_abs_max`` over the last batches, or ``moving_average_abs_max``.
      window_size: over how many batches ``range_abs_max`` looks back.
      moving_rate: how slowly moving averages move.
    """

    def __init__(
        self,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
    ):
        for name, kind in (
            ("activation_quantize_type", activation_quantize_type),
            ("weight_quantize_type", weight_quantize_type),
        ):
            if kind not in _KINDS:
                raise ValueError(f"Unknown {name}: '{kind}'. It can only be {' or '.join(map(repr, _KINDS))}.")
        self._weights = Scheme(weight_quantize_type, weight_bits, window_size, moving_rate)  # pyright: ignore
        self._activations = Scheme(activation_quantize_type, activation_bits, window_size, moving_rate)  # pyright: ignore

    def training_transpile(self, program: Program | None = None, startup_program: Program | None = None) -> None:
        """Lets a program round the inputs of convolutions and products; call it after ``minimize``.

        Scales are initialized by the startup program, which has to run afterwards.
        """
        program = default_main_program() if program is None else program
        startup = default_startup_program() if startup_program is None else startup_program
        rewritten, states = QuantizeInputs(_QUANTIZABLE, self._weights, self._activations).apply(program)
        program.become(rewritten)
        block = startup.global_block()
        for state in states:
            variable = block.create_var(name=state.name, shape=state.shape, dtype=state.dtype, persistable=True)
            Constant(state.value)(variable, block)

    def freeze_program(self, program: Program, place: Any, fuse_bn: bool = False, scope: Scope | None = None) -> None:
        """Lets a transpiled test program multiply integers; the weights in the scope are rounded to them.

        Args:
          program: a test program that was transpiled as the one for training was, or its clone for test.
          place: has no effect: the scope knows where weights are.
          fuse_bn: not supported.
          scope: holds weights and scales; by default the global scope.
        """
        if fuse_bn:
            raise NotImplementedError(
                "freeze_program(fuse_bn=True) is not supported: XLA fuses batch_norm into what it follows; "
                "leave fuse_bn out"
            )
        freeze(program, global_scope() if scope is None else scope, self._weights, self._activations, _QUANTIZABLE)

    def convert_to_int8(self, program: Program, place: Any, scope: Scope | None = None) -> None:
        """Stores the weights of a frozen program in variables of one byte per element, named ``<weight>.int8``."""
        store_as_int8(program, global_scope() if scope is None else scope, _QUANTIZABLE)


def freeze(program: Program, scope: Scope, weights: Scheme, activations: Scheme, types: Any) -> None:
    """Freezes ``program`` in place; its weights in ``scope`` become integers."""
    scales: dict[str, Any] = {}
    for weight in weights_of(program):
        variable = held(scope, weight.name)
        if weights.kind in ("abs_max", "channel_wise_abs_max"):
            scale = scale_of(np.array(variable), weight.by_channel)
        else:
            scale = np.array(held(scope, weight.scale))[0]
        variable.set(as_integers(np.array(variable), scale, weights.bits))
        scales[weight.name] = scale.tolist() if weight.by_channel else float(scale)
    frozen, channel_scales = Freeze(scales, types, weights, activations).apply(program)
    for name, values in channel_scales.items():
        scope.var(name).get_tensor().set(np.array(values, "float32"))
    program.become(frozen)


def store_as_int8(program: Program, scope: Scope, types: Any) -> None:
    """Rewrites ``program`` in place; its weights, which are integers already, are copied into new variables."""
    rewritten, names = StoreAsInt8(types).apply(program)
    for name, new_name in names.items():
        scope.var(new_name).get_tensor().set(np.array(held(scope, name)).astype("int8"))
    program.become(rewritten)


def held(scope: Scope, name: str) -> Any:
    """The tensor of that name in ``scope``."""
    found = scope.find_var(name)
    if found is None or found.value is None:
        raise ValueError(f"the scope has no value of {name}; run the startup program or load the model first")
    return found.get_tensor()
