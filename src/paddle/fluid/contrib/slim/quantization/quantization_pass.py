"""Passes that quantise graphs: for training, for inference, for phones.

Each rewrites the program of an IrGraph and initializes in the scope what it adds. The rewriting itself is
`refluid.transpiler.quantization`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from paddle.fluid.contrib.quantize.quantize_transpiler import freeze, held, store_as_int8
from refluid.ir import Program
from refluid.ir.graph import IrGraph
from refluid.scope import Scope
from refluid.transpiler.quantization.fake_ops import Kind, Scheme, State
from refluid.transpiler.quantization.freezing import NameForMobile, WriteOutputScales
from refluid.transpiler.quantization.training import QuantizeInputs, RoundActivations, WatchOutputs

__all__ = [
    "AddQuantDequantPass",
    "ConvertToInt8Pass",
    "OutScaleForInferencePass",
    "OutScaleForTrainingPass",
    "QuantizationFreezePass",
    "QuantizationTransformPass",
    "ScaleForInferencePass",
    "ScaleForTrainingPass",
    "TransformForMobilePass",
]

_DEFAULT = ("conv2d", "depthwise_conv2d", "mul")
WATCHED = (
    "conv2d depthwise_conv2d mul matmul relu leaky_relu relu6 sigmoid tanh prelu swish softmax batch_norm "
    "elementwise_add pool2d reshape2 transpose2 concat elementwise_mul scale"
).split()


class QuantizationTransformPass:
    """Lets a program round what it multiplies, in training and, with ``IrGraph(..., for_test=True)``, in tests.

    Args:
      scope: receives the first scales; needed unless activations are quantised by ``abs_max``.
      place: has no effect: the scope knows where values are.
      weight_bits, activation_bits: how many bits an element has.
      activation_quantize_type: ``abs_max``, ``range_abs_max`` or ``moving_average_abs_max``.
      weight_quantize_type: one of these or ``channel_wise_abs_max``: a scale for each output channel of a convolution.
      window_size: over how many batches ``range_abs_max`` looks back.
      moving_rate: how slowly moving averages move.
      skip_pattern: operators in a name scope that contains this word, or one of these, are left alone.
      quantizable_op_type: the types of operators that are rewritten; products of two activations are not.
    """

    _supported_quantizable_op_type = ("conv2d", "depthwise_conv2d", "mul", "matmul")

    def __init__(
        self,
        scope: Scope | None = None,
        place: Any = None,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
        skip_pattern: str | Sequence[str] = ("skip_quant",),
        quantizable_op_type: Sequence[str] = _DEFAULT,
    ):
        kinds = get_args(Kind)
        assert activation_quantize_type != "channel_wise_abs_max", (
            "The activation quantization type does not support 'channel_wise_abs_max'."
        )
        _check_kind("activation_quantize_type", activation_quantize_type, kinds[:3])
        _check_kind("weight_quantize_type", weight_quantize_type, kinds)
        _check_types(quantizable_op_type, self._supported_quantizable_op_type)
        self._scope, self._skip, self._types = scope, _words(skip_pattern), tuple(quantizable_op_type)
        self._weights = Scheme(weight_quantize_type, weight_bits, window_size, moving_rate)  # pyright: ignore
        self._activations = Scheme(activation_quantize_type, activation_bits, window_size, moving_rate)  # pyright: ignore

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrites the graph."""
        program = _program_of(graph)
        rewriting = QuantizeInputs(self._types, self._weights, self._activations, self._skip, graph.is_test())
        _replace(graph, *rewriting.apply(program), self._scope)
        return graph


class AddQuantDequantPass:
    """Rounds the inputs of operators without weights, such as pooling and additions, in their own range.

    Args:
      scope: receives the first scales.
      place: has no effect.
      moving_rate: how slowly the average of scales moves.
      quant_bits: how many bits an element has.
      skip_pattern: operators in a name scope that contains this word, or one of these, are left alone.
      quantizable_op_type: the types of operators that are rewritten.
      is_full_quantized: rewrites operators of all types that the pass knows.
    """

    _activation_type = ("relu", "relu6", "leaky_relu", "tanh", "swish")
    _supported_quantizable_op_type = (
        *"pool2d elementwise_add concat softmax argmax transpose equal gather greater_equal greater_than less_equal "
        "less_than mean not_equal reshape reshape2 bilinear_interp nearest_interp trilinear_interp slice squeeze "
        "elementwise_sub mul matmul".split(),
        *_activation_type,
    )

    def __init__(
        self,
        scope: Scope | None = None,
        place: Any = None,
        moving_rate: float = 0.9,
        quant_bits: int = 8,
        skip_pattern: str | Sequence[str] = ("skip_quant",),
        quantizable_op_type: Sequence[str] = ("elementwise_add", "pool2d"),
        is_full_quantized: bool = False,
    ):
        types = self._supported_quantizable_op_type if is_full_quantized else tuple(quantizable_op_type)
        _check_types(types, self._supported_quantizable_op_type)
        self._scope, self._skip, self._types = scope, _words(skip_pattern), types
        self._scheme = Scheme("moving_average_abs_max", quant_bits, rate=moving_rate)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrites the graph."""
        program = _program_of(graph)
        rewriting = RoundActivations(self._types, self._scheme, self._skip, graph.is_test())
        _replace(graph, *rewriting.apply(program), self._scope)
        return graph


class QuantizationFreezePass:
    """Lets a rounding test program multiply integers; weights in the scope are rounded to them.

    Args:
      scope: holds weights and scales.
      place: has no effect.
      weight_bits, activation_bits, weight_quantize_type: as in training.
      quantizable_op_type: the types of operators that are rewritten.
    """

    def __init__(
        self,
        scope: Scope,
        place: Any,
        weight_bits: int = 8,
        activation_bits: int = 8,
        weight_quantize_type: str = "abs_max",
        quantizable_op_type: Sequence[str] | None = None,
    ):
        assert scope is not None, "The scope cannot be set None."
        assert place is not None, "The place cannot be set None."
        _check_kind("weight_quantize_type", weight_quantize_type, get_args(Kind))
        self._scope = scope
        self._weights = Scheme(weight_quantize_type, weight_bits)  # pyright: ignore
        self._activations = Scheme("abs_max", activation_bits)
        self._types = tuple(quantizable_op_type or QuantizationTransformPass._supported_quantizable_op_type)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrites the graph."""
        freeze(_program_of(graph), self._scope, self._weights, self._activations, self._types)
        return graph


class ConvertToInt8Pass:
    """Stores the weights of a frozen program in variables of one byte per element, named ``<weight>.int8``."""

    def __init__(self, scope: Scope, place: Any, quantizable_op_type: Sequence[str] | None = None):
        assert scope is not None, "The scope cannot be set None."
        assert place is not None, "The place cannot be set None."
        self._scope = scope
        self._types = tuple(quantizable_op_type or QuantizationTransformPass._supported_quantizable_op_type)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrites the graph."""
        store_as_int8(_program_of(graph), self._scope, self._types)
        return graph


class TransformForMobilePass:
    """Names the operators of a frozen program as Paddle's library for phones does."""

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrites the graph."""
        program = _program_of(graph)
        graph.graph.replace(NameForMobile().apply(program))
        return graph


class OutScaleForTrainingPass:
    """Keeps moving averages of the largest magnitudes of what operators write, as variables ``<output>@scale``.

    Args:
      scope: receives the first scales.
      place: has no effect.
      moving_rate: how slowly the averages move.
    """

    def __init__(self, scope: Scope | None = None, place: Any = None, moving_rate: float = 0.9):
        self._scope, self._rate = scope, moving_rate

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrites the graph."""
        program = _program_of(graph)
        _replace(graph, *WatchOutputs(WATCHED, self._rate, graph.is_test()).apply(program), self._scope)
        return graph


class OutScaleForInferencePass:
    """Writes these averages into the operators, as the attribute ``out_threshold``."""

    def __init__(self, scope: Scope | None = None):
        self._scope = scope

    def apply(self, graph: IrGraph) -> IrGraph:
        """Rewrites the graph."""
        program = _program_of(graph)
        assert self._scope is not None, "The scope cannot be set None."
        watched = [op for op in program.global_block().ops if op.type == "moving_average_abs_max_scale"]
        scales = {op.input("X")[0]: np.array(held(self._scope, op.output("OutScale")[0])).item() for op in watched}
        graph.graph.replace(WriteOutputScales(scales).apply(program))
        return graph


# Their names in Fluid 1.5.
ScaleForTrainingPass, ScaleForInferencePass = OutScaleForTrainingPass, OutScaleForInferencePass


def _program_of(graph: IrGraph) -> Program:
    assert isinstance(graph, IrGraph), "graph must be the instance of IrGraph."
    return graph.graph.ordered_program()


def _replace(graph: IrGraph, program: Program, states: list[State], scope: Scope | None) -> None:
    """Shows the rewritten program; gives its state a value, unless it is for test and training has done so.

    differs: scales-for-tests
    """
    if states and scope is None:
        raise ValueError(f"the pass needs a scope: it initializes {states[0].name} there")
    graph.graph.replace(program)
    for state in states:
        assert scope is not None
        variable = scope.var(state.name)
        if variable.value is None or not graph.is_test():
            variable.get_tensor().set(np.full(state.shape, state.value, state.dtype))


def _check_kind(name: str, kind: str, known: Sequence[str]) -> None:
    if kind not in known:
        raise ValueError(f"Unknown {name} : '{kind}'. It can only be {' or '.join(map(repr, known))}.")


def _check_types(types: Sequence[str], known: Sequence[str]) -> None:
    for type in types:
        assert type in known, f"{type} is not supported for quantization."


def _words(pattern: str | Sequence[str]) -> tuple[str, ...]:
    return (pattern,) if isinstance(pattern, str) else tuple(pattern)
