"""Tensor arrays: lists of tensors that programs read and write by index, mostly in loops."""

from __future__ import annotations

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_outputs, append_single_op, without_gradient
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
    out = _array(helper, x.dtype) if array is None else array
    _check_array(out, "array_write")
    helper.append_op(type="write_to_array", inputs={"X": x, "I": i, "Array": array}, outputs={"Out": out})
    return out


def array_read(array, i) -> Variable:
    """Returns the tensor at index ``i`` of ``array``."""
    check_variable_and_dtype(i, "i", ["int64"], "array_read")
    _check_array(array, "array_read")
    return append_single_op("array_read", {"X": array, "I": i}, {"Out": array.dtype}, op_type="read_from_array")["Out"]


def array_length(array) -> Variable:
    """Returns the length of ``array`` as an int64 of shape [1]."""
    _check_array(array, "array_length")
    made = append_single_op("array_length", {"X": array}, {"Out": "int64"}, op_type="lod_array_length")
    return without_gradient(made["Out"])


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
    outputs, attrs = {"Out": array.dtype, "OutIndex": "int32"}, {"axis": axis, "use_stack": use_stack}
    made = append_outputs(helper, {"X": array}, outputs, attrs, "tensor_array_to_tensor")
    return made["Out"], made["OutIndex"]


def _array(helper: LayerHelper, dtype) -> Variable:
    return helper.create_variable(name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=dtype)


def _check_array(array, layer: str) -> None:
    if not isinstance(array, Variable) or array.type != VarType.LOD_TENSOR_ARRAY:
        raise TypeError(f"{layer}: array must be a tensor array created by create_array or array_write")
