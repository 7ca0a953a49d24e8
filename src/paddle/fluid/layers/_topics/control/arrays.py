"""Tensor arrays: lists of tensors that programs read and write by index, mostly in loops."""

from __future__ import annotations

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable, VarType

__all__ = ["array_length", "array_read", "array_write", "create_array", "tensor_array_to_tensor"]


def create_array(dtype) -> Variable:
    """Creates an empty tensor array."""
    return _array(LayerHelper("array"), dtype)


def array_write(x, i, array=None) -> Variable:
    """Writes ``x`` at index ``i`` of ``array``, or of a new array, and returns the array."""
    check_variable_and_dtype(i, "i", ["int64"], "array_write")
    check_type(x, "x", Variable, "array_write")
    helper = LayerHelper("array_write")
    if array is None:
        array = _array(helper, x.dtype)
        before = {}
    else:
        _check_array(array, "array_write")
        before = {"Array": [array]}
    helper.append_op(type="write_to_array", inputs={"X": [x], "I": [i], **before}, outputs={"Out": [array]})
    return array


def array_read(array, i) -> Variable:
    """Returns the tensor at index ``i`` of ``array``."""
    check_variable_and_dtype(i, "i", ["int64"], "array_read")
    _check_array(array, "array_read")
    helper = LayerHelper("array_read")
    out = helper.create_variable_for_type_inference(array.dtype)
    helper.append_op(type="read_from_array", inputs={"X": [array], "I": [i]}, outputs={"Out": [out]})
    return out


def array_length(array) -> Variable:
    """Returns the length of ``array`` as an int64 of shape [1]."""
    _check_array(array, "array_length")
    helper = LayerHelper("array_length")
    out = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    helper.append_op(type="lod_array_length", inputs={"X": [array]}, outputs={"Out": [out]})
    return out


def tensor_array_to_tensor(input, axis=1, name=None, use_stack=False) -> tuple[Variable, Variable]:
    """Concatenates the tensors of an array along ``axis``; also returns the size of each along that axis.

    Args:
      use_stack: stack along a new axis instead.
    """
    check_type(input, "input", (list, Variable), "tensor_array_to_tensor")
    _check_array(input, "tensor_array_to_tensor")
    return join_array(LayerHelper("tensor_array_to_tensor", name=name), input, axis, use_stack=use_stack)


def join_array(
    helper: LayerHelper, array: Variable, axis: int | Variable, *, use_stack: bool
) -> tuple[Variable, Variable]:
    """Concatenates or stacks the tensors of an array; also returns their sizes along ``axis``."""
    check_type(axis, "axis", int, helper.layer_type)
    out = helper.create_variable_for_type_inference(array.dtype)
    sizes = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="tensor_array_to_tensor",
        inputs={"X": [array]},
        outputs={"Out": [out], "OutIndex": [sizes]},
        attrs={"axis": axis, "use_stack": use_stack},
    )
    return out, sizes


def _array(helper: LayerHelper, dtype) -> Variable:
    return helper.create_variable(name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=dtype)


def _check_array(array, layer: str) -> None:
    if not isinstance(array, Variable) or array.type != VarType.LOD_TENSOR_ARRAY:
        raise TypeError(f"{layer}: array must be a tensor array created by create_array or array_write")
