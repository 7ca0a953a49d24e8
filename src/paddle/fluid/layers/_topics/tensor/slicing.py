"""Slicing, cropping and reversing tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output, append_single_op, input_or_attr
from paddle.fluid.layers._topics.core.integer_arguments import Integers, pass_integers
from refluid.ir import Variable

__all__ = ["crop", "crop_tensor", "reverse", "slice", "strided_slice"]


def slice(input: Variable, axes: Sequence[int], starts: Integers, ends: Integers) -> Variable:
    """Slices between ``starts`` and ``ends`` along ``axes``.

    Args:
      starts, ends: integers, where negative ones count from the end, or variables.
    """
    helper = LayerHelper("slice")
    inputs, attrs, computed = _bounds(helper, axes, starts=starts, ends=ends)
    # A single variable for all bounds leaves every axis unknown.
    if any(isinstance(bound, Variable) for bound in (starts, ends)):
        computed = [True] * len(axes)
    return _append_slice(helper, input, inputs, attrs, computed)


def strided_slice(
    input: Variable, axes: Sequence[int], starts: Integers, ends: Integers, strides: Integers
) -> Variable:
    """Takes every stride-th element between ``starts`` and ``ends`` along ``axes``; a negative stride goes backwards.

    Args:
      starts, ends, strides: integers or variables; an end of -1 with a negative stride includes the first element.
    """
    helper = LayerHelper("strided_slice")
    return _append_slice(helper, input, *_bounds(helper, axes, starts=starts, ends=ends, strides=strides))


def _bounds(helper: LayerHelper, axes: Sequence[int], **bounds: Integers) -> tuple[dict, dict, list[bool]]:
    """Returns inputs and attributes for the bounds, and whether each axis has a bound known only at run time."""
    check_type(axes, "axes", (list, tuple), helper.layer_type)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"axes": list(axes)}
    computed = [False] * len(axes)
    for name, values in bounds.items():
        slot = f"{name.capitalize()}Tensor"
        passed, known = pass_integers(helper, name, values, slot, f"{slot}List")
        inputs.update(passed)
        if known is None or isinstance(values, Variable):
            continue
        if len(known) != len(axes):
            raise ValueError(f"{helper.layer_type}: {name} {known} must have one number per axis in {list(axes)}")
        attrs[name] = known
        computed = [before or isinstance(value, Variable) for before, value in zip(computed, values, strict=True)]
    return inputs, attrs, computed


def _append_slice(helper: LayerHelper, x: Variable, inputs: dict, attrs: dict, computed: list[bool]) -> Variable:
    check_type(x, "input", Variable, helper.layer_type)
    attrs["infer_flags"] = [-1 if later else 1 for later in computed]
    return append_output(helper, {"Input": x, **inputs}, x.dtype, attrs)


def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """Crops a box from x.

    Args:
      shape: the dims of the box, or a variable with that shape.
      offsets: the start of the box, integers or a variable that holds them; defaults to the start of x.
    """
    check_type(x, "x", Variable, "crop")
    check_type(shape, "shape", (list, tuple, Variable), "crop")
    offsets = [0] * len(x.shape) if offsets is None else offsets
    shape_input, shape_attr = input_or_attr(shape, "Y", "shape")
    start_input, start_attr = input_or_attr(offsets, "Offsets", "offsets")
    inputs, attrs = {"X": x, **shape_input, **start_input}, {**shape_attr, **start_attr}
    return append_single_op("crop", inputs, {"Out": x.dtype}, attrs, name)["Out"]


def crop_tensor(
    x: Variable, shape: Integers | None = None, offsets: Integers | None = None, name: str | None = None
) -> Variable:
    """Crops a box from x.

    Args:
      shape: the dims of the box; -1 extends to the end of x; variables are read when the program runs.
      offsets: the start of the box; defaults to the start of x.
    """
    check_type(x, "x", Variable, "crop_tensor")
    if shape is None:
        raise TypeError("crop_tensor: shape is required")
    helper = LayerHelper("crop_tensor", name=name)
    out = helper.create_variable_for_type_inference(x.dtype)
    offsets = [0] * len(x.shape) if offsets is None else offsets
    offset_inputs, known_offsets = pass_integers(helper, "offsets", offsets, "Offsets", "OffsetsTensor")
    shape_inputs, known_shape = pass_integers(helper, "shape", shape, "Shape", "ShapeTensor", unknown=0)
    if any(offset < 0 and not offset_inputs for offset in known_offsets or ()):
        raise ValueError(f"crop_tensor: offsets {known_offsets} must not be negative")
    if any(dim < -1 or (dim == 0 and not shape_inputs) for dim in known_shape or ()):
        raise ValueError(f"crop_tensor: the dims of shape {known_shape} must be positive or -1")
    attrs = {"offsets": known_offsets, "shape": known_shape}
    inputs = {"X": x, **offset_inputs, **shape_inputs}
    helper.append_op(type="crop_tensor", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """Reverses x along one axis or several."""
    check_type(x, "x", Variable, "reverse")
    check_type(axis, "axis", (int, tuple, list), "reverse")
    axes = [axis] if isinstance(axis, int) else list(axis)
    return append_single_op("reverse", {"X": x}, {"Out": x.dtype}, {"axis": axes})["Out"]
