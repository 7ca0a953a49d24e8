"""Layers for sequences: packed rows with LoD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import (
    append_output,
    append_single_op,
    input_or_attr,
    require_floating,
    require_integer,
    without_gradient,
)
from refluid.ir import Variable, as_dtype

__all__ = [
    "im2sequence",
    "lod_append",
    "lod_reset",
    "row_conv",
    "sequence_concat",
    "sequence_conv",
    "sequence_enumerate",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_mask",
    "sequence_pad",
    "sequence_pool",
    "sequence_reshape",
    "sequence_reverse",
    "sequence_scatter",
    "sequence_slice",
    "sequence_softmax",
    "sequence_unpad",
]

_NUMBERS = ("float32", "float64", "int32", "int64")


def _single(
    layer_type: str,
    inputs: dict[str, Variable | None],
    attrs: dict[str, Any] | None = None,
    name: str | None = None,
    output: str = "Out",
) -> Variable:
    """Appends one op whose output has the dtype of its first input."""
    first = next(iter(inputs.values()))
    check_variable_and_dtype(first, "input", _NUMBERS, layer_type)
    return append_single_op(layer_type, inputs, {output: first.dtype}, attrs, name)[output]  # pyright: ignore


def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """Reduces each sequence to one row.

    Args:
      pool_type: sum, average, sqrt (sum divided by the square root of the length), max, first or last.
      pad_value: the result for an empty sequence.
    """
    require_floating("sequence_pool", input=input)
    attrs = {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value}
    outputs = {"Out": input.dtype, "MaxIndex": input.dtype}
    made = append_single_op("sequence_pool", {"X": input}, outputs, attrs)
    without_gradient(made["MaxIndex"])
    return made["Out"]


def sequence_first_step(input: Variable) -> Variable:
    """Returns the first row of each sequence."""
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """Returns the last row of each sequence."""
    return sequence_pool(input, "last")


def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Computes the softmax within each sequence of scalars."""
    require_floating("sequence_softmax", input=input)
    return _single("sequence_softmax", {"X": input}, {"use_cudnn": use_cudnn}, name)


def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: Any = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
    padding_start: int | None = None,
) -> Variable:
    """Convolves along each sequence, with zeros beyond its ends.

    Args:
      padding: ignored; sequences keep their lengths.
      padding_start: the offset of the window relative to the row; defaults to minus half the window.
    """
    require_floating("sequence_conv", input=input)
    helper = LayerHelper("sequence_conv", input=input, bias_attr=bias_attr, param_attr=param_attr, act=act, name=name)
    shape = [filter_size * input.shape[1], num_filters]
    weight = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=input.dtype)
    start = -(filter_size // 2) if padding_start is None else padding_start
    attrs = {"contextStride": filter_stride, "contextStart": start, "contextLength": filter_size}
    out = append_output(helper, {"X": input, "Filter": weight}, input.dtype, attrs)
    return helper.append_activation(helper.append_bias_op(out))


def row_conv(input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None) -> Variable:
    """Adds to each row a weighted sum of the rows that follow it, column by column (lookahead convolution)."""
    require_floating("row_conv", input=input)
    helper = LayerHelper("row_conv", input=input, param_attr=param_attr, act=act)
    shape = [future_context_size + 1, input.shape[-1]]
    weight = helper.create_parameter(attr=helper.param_attr, shape=shape, dtype=input.dtype)
    return helper.append_activation(append_output(helper, {"X": input, "Filter": weight}, input.dtype))


def sequence_concat(input: list[Variable], name: str | None = None) -> Variable:
    """Concatenates the i-th sequences of all inputs, for each i."""
    if not isinstance(input, list | tuple) or not input:
        raise TypeError(f"sequence_concat: input must be a list of variables, not {type(input).__name__}")
    helper = LayerHelper("sequence_concat", input=input, name=name)
    return append_output(helper, {"X": input}, helper.input_dtype())


def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Variable:
    """Returns ``length`` rows of each sequence, starting at ``offset``."""
    require_integer("sequence_slice", offset=offset, length=length)
    offset.stop_gradient = length.stop_gradient = True
    return _single("sequence_slice", {"X": input, "Offset": offset, "Length": length}, None, name)


def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Variable:
    """Repeats row or sequence i of x once per element of sequence i in y's LoD level ``ref_level``."""
    return _single("sequence_expand", {"X": x, "Y": y}, {"ref_level": ref_level}, name)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeats row i of x once per row of sequence i of y."""
    return _single("sequence_expand_as", {"X": x, "Y": y}, None, name)


def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Pads sequences to [sequences, length, ...] with ``pad_value``; also returns their lengths.

    Args:
      maxlen: the padded length; defaults to that of the longest sequence in the batch.
    """
    check_variable_and_dtype(x, "x", _NUMBERS, "sequence_pad")
    pad_value.stop_gradient = True
    attrs = {"padded_length": -1 if maxlen is None else maxlen}
    inputs = {"X": x, "PadValue": pad_value}
    made = append_single_op("sequence_pad", inputs, {"Out": x.dtype, "Length": "int64"}, attrs, name)
    return made["Out"], without_gradient(made["Length"])


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """Converts the first ``length`` elements of each row to packed sequences."""
    require_integer("sequence_unpad", length=length)
    length.stop_gradient = True
    return _single("sequence_unpad", {"X": x, "Length": length}, None, name)


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Reshapes the elements of each sequence into rows of ``new_dim`` elements."""
    return _single("sequence_reshape", {"X": input}, {"new_dim": new_dim})


def sequence_scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """Adds the updates of sequence i to row i of the input, in the columns given by ``index``."""
    require_integer("sequence_scatter", index=index)
    return _single("sequence_scatter", {"X": input, "Ids": index, "Updates": updates}, None, name)


def sequence_enumerate(input: Variable, win_size: int, pad_value: int = 0, name: str | None = None) -> Variable:
    """Returns, for each id, the window of ``win_size`` ids that starts with it."""
    require_integer("sequence_enumerate", input=input)
    attrs = {"win_size": win_size, "pad_value": pad_value}
    return without_gradient(_single("sequence_enumerate", {"X": input}, attrs, name))


def sequence_mask(x: Variable, maxlen: Any = None, dtype: Any = "int64", name: str | None = None) -> Variable:
    """Returns a mask for each length: that many ones followed by zeros.

    Args:
      maxlen: a number or a variable; defaults to the largest length.
    """
    limit, attrs = input_or_attr(maxlen, "MaxLenTensor", "maxlen")
    attrs["out_dtype"] = int(as_dtype(dtype))
    return without_gradient(append_single_op("sequence_mask", {"X": x, **limit}, {"Y": dtype}, attrs, name)["Y"])


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """Reverses each sequence."""
    return _single("sequence_reverse", {"X": x}, None, name, output="Y")


def lod_reset(x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None) -> Variable:
    """Replaces x's LoD by that of ``y`` (or the offsets y holds), or by the offsets in ``target_lod``."""
    if y is None and target_lod is None:
        raise ValueError("lod_reset requires y or target_lod")
    return _single("lod_reset", {"X": x, "Y": y}, {"target_lod": list(target_lod or ())} if y is None else None)


def lod_append(x: Variable, level: Any) -> Variable:
    """Appends a LoD level to x: a list of offsets, or a variable whose LoD or values are the offsets."""
    if isinstance(level, Variable):
        inputs, attrs = {"X": x, "Y": level}, {"append": True}
    elif isinstance(level, list | tuple):
        inputs, attrs = {"X": x}, {"append": True, "target_lod": list(level)}
    else:
        raise ValueError(f"lod_append: level must be a list, a tuple or a variable, not {type(level).__name__}")
    check_variable_and_dtype(x, "x", _NUMBERS, "lod_append")
    return append_single_op("lod_append", inputs, {"Out": x.dtype}, attrs, op_type="lod_reset")["Out"]


def im2sequence(
    input: Variable,
    filter_size: Any = 1,
    stride: Any = 1,
    padding: Any = 0,
    input_image_size: Variable | None = None,
    out_stride: Any = 1,
    name: str | None = None,
) -> Variable:
    """Converts each image to a sequence of its windows.

    Args:
      padding: one number, two (vertical, horizontal), or four (up, left, down, right).
    """
    require_floating("im2sequence", input=input)
    pair = [padding, padding] if isinstance(padding, int) else list(padding)
    attrs = {
        "kernels": [filter_size] * 2 if isinstance(filter_size, int) else list(filter_size),
        "strides": [stride] * 2 if isinstance(stride, int) else list(stride),
        "paddings": pair * 2 if len(pair) == 2 else pair,
    }
    if input_image_size is not None:
        attrs["out_stride"] = [out_stride] * 2 if isinstance(out_stride, int) else list(out_stride)
    return _single("im2sequence", {"X": input, "Y": input_image_size}, attrs, name)
