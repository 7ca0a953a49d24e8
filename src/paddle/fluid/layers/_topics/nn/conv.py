"""Convolution layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from paddle.fluid.initializer import Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_outputs, named_layer, require_floating
from paddle.fluid.layers._topics.core.integer_arguments import per_dim
from refluid.ir import Variable

__all__ = ["conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose"]


def _conv(type: str, data_format: str, doc: str) -> Callable[..., Variable]:
    rank = _rank(type)

    def layer(
        input: Variable,
        num_filters: int,
        filter_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        use_cudnn: bool = True,
        act: Any = None,
        name: str | None = None,
        data_format: str = data_format,
    ) -> Variable:
        channels = _channels(type, input, groups, data_format, use_cudnn, rank)
        kernel = per_dim(filter_size, rank, "filter_size")
        attrs = _window_attrs(rank, stride, padding, dilation, groups, data_format)
        attrs |= {"use_cudnn": use_cudnn, "use_mkldnn": False}
        op_type = type
        if rank == 2:
            attrs["fuse_relu_before_depthwise_conv"] = False
            if channels == groups and num_filters % channels == 0 and not use_cudnn:
                op_type = "depthwise_conv2d"
        helper = LayerHelper(op_type, input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
        filters = helper.create_parameter(
            helper.param_attr,
            [num_filters, channels // (groups or 1), *kernel],
            input.dtype,
            default_initializer=Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * channels)), 0),
        )
        return _finish(helper, input, filters, attrs)

    return named_layer(layer, type, doc)


def _conv_transpose(type: str, data_format: str, doc: str) -> Callable[..., Variable]:
    rank = _rank(type)

    def layer(
        input: Variable,
        num_filters: int,
        output_size: Any = None,
        filter_size: Any = None,
        padding: Any = 0,
        stride: Any = 1,
        dilation: Any = 1,
        groups: int | None = None,
        param_attr: Any = None,
        bias_attr: Any = None,
        use_cudnn: bool = True,
        act: Any = None,
        name: str | None = None,
        data_format: str = data_format,
    ) -> Variable:
        channels = _channels(type, input, groups, data_format, use_cudnn, rank)
        depthwise = rank == 2 and channels == groups == num_filters and not use_cudnn
        op_type = "depthwise_conv2d_transpose" if depthwise else type
        helper = LayerHelper(op_type, input=input, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
        attrs = _window_attrs(rank, stride, padding, dilation, groups, data_format)
        wanted = [] if output_size is None else per_dim(output_size, rank, "output_size")
        if filter_size is not None:
            kernel = per_dim(filter_size, rank, "filter_size")
        elif not wanted:
            raise ValueError(f"{op_type}: output_size is required if filter_size is None")
        else:
            kernel = _kernel_for(wanted, _space(input, data_format), attrs)
        shape = [channels, num_filters // (groups or 1), *kernel]
        filters = helper.create_parameter(helper.param_attr, shape, input.dtype)
        # Fluid's attribute does not distinguish volumes from images.
        fluid_format = "NHWC" if data_format.endswith("C") else "NCHW"
        attrs |= {"use_cudnn": use_cudnn, "output_size": wanted, "data_format": fluid_format}
        return _finish(helper, input, filters, attrs)

    return named_layer(layer, type, doc)


def _rank(type: str) -> int:
    return 3 if "3d" in type else 2


def _finish(helper: LayerHelper, input: Variable, filters: Any, attrs: dict[str, Any]) -> Variable:
    out = append_outputs(helper, {"Input": input, "Filter": filters}, {"Output": input.dtype}, attrs)["Output"]
    channel_dim = len(input.shape) - 1 if attrs["data_format"].endswith("C") else 1
    return helper.append_activation(helper.append_bias_op(out, dim_start=channel_dim, dim_end=channel_dim + 1))


def _window_attrs(
    rank: int, stride: Any, padding: Any, dilation: Any, groups: int | None, data_format: str
) -> dict[str, Any]:
    paddings, algorithm = paddings_of(padding, rank, data_format)
    return {
        "strides": per_dim(stride, rank, "stride"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "dilations": per_dim(dilation, rank, "dilation"),
        "groups": groups or 1,
        "data_format": data_format,
    }


def _kernel_for(wanted: list[int], space: Sequence[int], window: dict[str, Any]) -> list[int]:
    """Returns the kernel size that maps ``space`` to exactly ``wanted``."""
    pads = window["paddings"]
    sides = zip(pads, pads, strict=True) if len(pads) == len(wanted) else zip(pads[::2], pads[1::2], strict=True)
    sums = [before + after for before, after in sides]
    sides = zip(wanted, space, window["strides"], sums, window["dilations"], strict=True)
    return [(size - (n - 1) * stride + pad - 1) // dilation + 1 for size, n, stride, pad, dilation in sides]


def _space(input: Variable, data_format: str) -> Sequence[int]:
    return input.shape[1:-1] if data_format.endswith("C") else input.shape[2:]


def _channels(layer: str, input: Variable, groups: int | None, data_format: str, use_cudnn: bool, rank: int) -> int:
    """Validates the arguments that all convolutions share and returns the number of input channels."""
    require_floating(layer, input=input)
    if not isinstance(use_cudnn, bool):
        raise ValueError(f"{layer}: use_cudnn must be True or False, not {use_cudnn!r}")
    known = ("NCHW", "NHWC") if rank == 2 else ("NCDHW", "NDHWC")
    if data_format not in known:
        raise ValueError(f"{layer}: data_format must be {known[0]!r} or {known[1]!r}, not {data_format!r}")
    if len(input.shape) != rank + 2:
        raise ValueError(f"{layer}: the input must have {rank + 2} dims, got shape {list(input.shape)}")
    channels = input.shape[-1 if data_format.endswith("C") else 1]
    if channels < 0:
        raise ValueError(f"{layer}: the number of channels must be known, got shape {list(input.shape)}")
    if groups is not None and (groups <= 0 or channels % groups):
        raise ValueError(f"{layer}: {channels} input channels are not divisible into {groups} groups")
    return channels


def paddings_of(padding: Any, rank: int, data_format: str) -> tuple[list[int], str]:
    """Returns the op's ``paddings`` and ``padding_algorithm`` for the user's padding argument."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ValueError(f"padding must be 'SAME', 'VALID' or numbers, not {padding!r}")
        return [0] * rank, padding.upper()
    if isinstance(padding, Sequence) and len(padding) == rank + 2 and all(isinstance(p, Sequence) for p in padding):
        pairs = [list(pair) for pair in padding]
        others = [pairs[0], pairs[-1]] if data_format.endswith("C") else pairs[:2]
        if any(map(any, others)):
            raise ValueError(f"padding {padding!r} must be zero for the batch and the channels")
        padding = list(itertools.chain.from_iterable(pairs[1:-1] if data_format.endswith("C") else pairs[2:]))
    if isinstance(padding, Sequence) and len(padding) == 2 * rank:
        sides = per_dim(padding, 2 * rank, "padding")
        return (sides[::2] if sides[::2] == sides[1::2] else sides), "EXPLICIT"
    return per_dim(padding, rank, "padding"), "EXPLICIT"


conv2d = _conv(
    "conv2d",
    "NCHW",
    """Convolves images with ``num_filters`` filters.

    Args:
      filter_size, stride, dilation: a number, or one for height and one for width.
      padding: a number, one per dim, one before and one after each dim, a pair for every dim of the input, "SAME" or
        "VALID".
      groups: the number of channel groups; each filter sees the channels of one group.
      data_format: "NCHW" or "NHWC"; filters are [num_filters, channels / groups, height, width] either way.
    """,
)
conv3d = _conv(
    "conv3d", "NCDHW", "Convolves volumes with ``num_filters`` filters; arguments as for conv2d, with depth first."
)
conv2d_transpose = _conv_transpose(
    "conv2d_transpose",
    "NCHW",
    """Applies a transposed convolution to images: the gradient of conv2d with respect to its input.

    Args:
      output_size: height and width of the result; determines the filter size if that is not given.
      filter_size: height and width of the filters; determines the smallest result if output_size is not given.
    """,
)
conv3d_transpose = _conv_transpose(
    "conv3d_transpose",
    "NCDHW",
    "Applies a transposed convolution to volumes; arguments as for conv2d_transpose, with depth first.",
)
