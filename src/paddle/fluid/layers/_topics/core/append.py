"""Appending a single op without parameters, and checking the dtypes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable

__all__: list[str] = []

FLOATING = ("float16", "float32", "float64")
INTEGER = ("int32", "int64")


def append_single_op(
    layer_type: str,
    inputs: Mapping[str, Variable | None],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    name: str | None = None,
    op_type: str | None = None,
) -> dict[str, Variable]:
    """Appends an op and returns its new output variables by slot.

    Args:
      layer_type: prefix of the output names, and the op type unless ``op_type`` is given.
      inputs: slot -> variable; None leaves a slot unconnected.
      outputs: slot -> dtype, in the order in which the variables are named.
      attrs: the op's attributes.
      name: the name the user passed to the layer.
    """
    helper = LayerHelper(layer_type, name=name)
    made = {slot: helper.create_variable_for_type_inference(dtype) for slot, dtype in outputs.items()}
    helper.append_op(
        type=op_type or layer_type,
        inputs={slot: [variable] for slot, variable in inputs.items() if variable is not None},
        outputs={slot: [variable] for slot, variable in made.items()},
        attrs=attrs or {},
    )
    return made


def require_floating(layer_type: str, **variables: Any) -> None:
    """Raises TypeError unless every argument is a floating-point variable."""
    for name, variable in variables.items():
        check_variable_and_dtype(variable, name, FLOATING, layer_type)


def require_integer(layer_type: str, **variables: Any) -> None:
    """Raises TypeError unless every argument is an integer variable."""
    for name, variable in variables.items():
        check_variable_and_dtype(variable, name, INTEGER, layer_type)
