"""Appending a single op with its outputs, and checking the dtypes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable

FLOATING = ("float16", "float32", "float64")
INTEGER = ("int32", "int64")
# What Fluid computes with. Real Fluid refuses float16 in some layers, for want of a kernel; here all take it.
NUMBERS = ("bfloat16", *FLOATING, *INTEGER)

# Slot -> its variables; None leaves a slot unconnected.
Inputs = Mapping[str, Variable | Sequence[Variable] | None]


def append_outputs(
    helper: LayerHelper,
    inputs: Inputs,
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    op_type: str | None = None,
) -> dict[str, Variable]:
    """Appends an op and returns its new output variables by slot.

    Args:
      outputs: slot -> dtype, in the order in which the variables are named.
      attrs: the op's attributes; None leaves one at its default.
      op_type: defaults to the helper's layer type.
    """
    made = {slot: helper.create_variable_for_type_inference(dtype) for slot, dtype in outputs.items()}
    helper.append_op(type=op_type or helper.layer_type, inputs=inputs, outputs=made, attrs=attrs)
    return made


def append_output(
    helper: LayerHelper, inputs: Inputs, dtype: Any, attrs: Mapping[str, Any] | None = None, op_type: str | None = None
) -> Variable:
    """Appends an op with a single output, ``Out``, and returns it."""
    return append_outputs(helper, inputs, {"Out": dtype}, attrs, op_type)["Out"]


def append_single_op(
    layer_type: str,
    inputs: Inputs,
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    name: str | None = None,
    op_type: str | None = None,
) -> dict[str, Variable]:
    """Like `append_outputs`, for a layer without parameters; ``name`` is the name the user passed to the layer."""
    return append_outputs(LayerHelper(layer_type, name=name), inputs, outputs, attrs, op_type)


def input_or_attr(value: Any, slot: str, attr: str) -> tuple[dict[str, Variable], dict[str, Any]]:
    """Returns ``value`` as inputs if it is a variable, otherwise as attributes; the other dict is empty."""
    return ({slot: value}, {}) if isinstance(value, Variable) else ({}, {attr: value})


def without_gradient(variable: Variable) -> Variable:
    """Stops gradients at ``variable`` and returns it."""
    variable.stop_gradient = True
    return variable


def named_layer(layer: Callable[..., Any], name: str, doc: str | None) -> Callable[..., Any]:
    """Returns ``layer``, a function made by a table, with its public name and docstring."""
    layer.__name__ = layer.__qualname__ = name
    layer.__doc__ = doc
    return layer


def require_floating(layer_type: str, **variables: Any) -> None:
    """Raises TypeError unless every argument is a floating-point variable."""
    for name, variable in variables.items():
        check_variable_and_dtype(variable, name, FLOATING, layer_type)


def require_integer(layer_type: str, **variables: Any) -> None:
    """Raises TypeError unless every argument is an integer variable."""
    for name, variable in variables.items():
        check_variable_and_dtype(variable, name, INTEGER, layer_type)
