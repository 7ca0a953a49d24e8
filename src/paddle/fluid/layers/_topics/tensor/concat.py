"""Concatenating, splitting, stacking and repeating tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.control.arrays import join_array
from paddle.fluid.layers._topics.core.append import (
    NUMBERS,
    append_output,
    append_single_op,
    input_or_attr,
    without_gradient,
)
from paddle.fluid.layers._topics.core.integer_arguments import Integers, check_integer, pass_integers
from refluid.ir import Variable, VarType

__all__ = ["concat", "expand", "expand_as", "split", "stack", "unstack"]


def _variables(layer: str, name: str, given: Any) -> list[Variable]:
    variables = list(given) if isinstance(given, list | tuple) else [given]
    if not variables:
        raise ValueError(f"{layer}: {name} is an empty list")
    for variable in variables:
        check_type(variable, name, Variable, layer)
    arrays = [v for v in variables if v.type == VarType.LOD_TENSOR_ARRAY]
    if arrays and len(variables) > 1:
        raise ValueError(f"{layer}: a tensor array must be the only input, got {len(variables) - 1} others")
    return variables


def concat(input: Sequence[Variable], axis: int | Variable = 0, name: str | None = None) -> Variable:
    """Concatenates tensors along ``axis``, an integer or a variable."""
    if not isinstance(input, list | tuple):
        warnings.warn(f"concat: input should be a list of variables, got a single {type(input).__name__}", stacklevel=2)
    check_type(axis, "axis", (int, Variable), "concat")
    variables = _variables("concat", "input", input)
    helper = LayerHelper("concat", input=variables, name=name)
    if variables[0].type == VarType.LOD_TENSOR_ARRAY:
        return join_array(helper, variables[0], axis, use_stack=False)[0]
    for variable in variables:
        check_variable_and_dtype(variable, "input", NUMBERS, "concat")
    inputs, attrs = input_or_attr(axis, "AxisTensor", "axis")
    for variable in inputs.values():
        without_gradient(variable)
    return append_output(helper, {"X": variables, **inputs}, helper.input_dtype(), attrs)


def split(
    input: Variable, num_or_sections: int | Sequence[int | Variable], dim: int | Variable = -1, name: str | None = None
) -> list[Variable]:
    """Splits a tensor along ``dim`` into equal parts, or into parts of the given sizes.

    Args:
      num_or_sections: the number of parts, or a list of their sizes, one of which may be -1 for the rest.
      dim: an integer or a variable.
    """
    check_type(input, "input", Variable, "split")
    check_type(num_or_sections, "num_or_sections", (int, list, tuple), "split")
    check_type(dim, "dim", (int, Variable), "split")
    helper = LayerHelper("split", name=name)
    inputs: dict[str, Any] = {"X": [input]}
    attrs: dict[str, Any] = {"num": num_or_sections if isinstance(num_or_sections, int) else 0}
    size = -1
    if isinstance(dim, Variable):
        dim.stop_gradient = True
        inputs["AxisTensor"] = [dim]
    else:
        attrs["axis"] = dim % len(input.shape) if dim < 0 else dim
        size = input.shape[attrs["axis"]]
    if isinstance(num_or_sections, int):
        count = num_or_sections
        if count < 2:
            raise ValueError(f"split: num_or_sections must be at least 2, not {count}")
        if size > 0 and size % count:
            raise ValueError(f"split: a dim of size {size} is not divisible into {count} equal parts")
    else:
        count = len(num_or_sections)
        if 0 < size < count:
            raise ValueError(f"split: a dim of size {size} cannot be split into {count} parts")
        if sum(isinstance(section, int) and section == -1 for section in num_or_sections) > 1:
            raise ValueError(f"split: at most one section of {list(num_or_sections)} may be -1")
        sections, attrs["sections"] = pass_integers(
            helper, "num_or_sections", num_or_sections, "", "SectionsTensorList"
        )
        inputs.update(sections)
    outs = [helper.create_variable_for_type_inference(input.dtype) for _ in range(count)]
    helper.append_op(type="split", inputs=inputs, outputs={"Out": outs}, attrs=attrs)
    return outs


def stack(x: Variable | Sequence[Variable], axis: int = 0) -> Variable:
    """Stacks tensors of the same shape along a new axis."""
    variables = _variables("stack", "x", x)
    helper = LayerHelper("stack")
    axis = 0 if axis is None else axis
    if variables[0].type == VarType.LOD_TENSOR_ARRAY:
        return join_array(helper, variables[0], axis, use_stack=True)[0]
    out = helper.create_variable_for_type_inference(variables[0].dtype)
    helper.append_op(type="stack", inputs={"X": variables}, outputs={"Y": [out]}, attrs={"axis": axis})
    return out


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """Splits x along ``axis`` into slices without that axis; ``num`` is required if the size is unknown."""
    check_type(x, "x", Variable, "unstack")
    helper = LayerHelper("unstack")
    if num is None:
        num = x.shape[axis]
        if num <= 0:
            raise ValueError(f"unstack: dim {axis} of shape {list(x.shape)} is unknown; pass num=")
    outs = [helper.create_variable_for_type_inference(x.dtype) for _ in range(num)]
    helper.append_op(type="unstack", inputs={"X": [x]}, outputs={"Y": outs}, attrs={"axis": axis, "num": num})
    return outs


def expand(x: Variable, expand_times: Integers, name: str | None = None) -> Variable:
    """Tiles x ``expand_times`` along each axis; a variable is read when the program runs."""
    check_variable_and_dtype(x, "x", ("bool", *NUMBERS), "expand")
    helper = LayerHelper("expand", name=name)
    if not isinstance(expand_times, Variable):
        for times in expand_times:
            if not isinstance(times, Variable) and check_integer(helper, "expand_times", times) < 1:
                raise ValueError(f"expand: expand_times {list(expand_times)} must be positive")
    inputs, times = pass_integers(helper, "expand_times", expand_times, "ExpandTimes", "expand_times_tensor")
    return append_output(helper, {"X": x, **inputs}, x.dtype, {"expand_times": times})


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """Tiles x to the shape of ``target_tensor``."""
    check_type(x, "x", Variable, "expand_as")
    check_type(target_tensor, "target_tensor", Variable, "expand_as")
    inputs = {"X": x, "target_tensor": target_tensor}
    return append_single_op("expand_as", inputs, {"Out": x.dtype}, name=name)["Out"]
