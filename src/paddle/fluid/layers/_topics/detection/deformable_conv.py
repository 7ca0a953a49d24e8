"""Convolutions whose kernel elements are moved at every position."""

from __future__ import annotations

import math
from typing import Any

from paddle.fluid.initializer import Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_outputs, require_floating
from paddle.fluid.layers._topics.core.integer_arguments import per_dim
from refluid.ir import Variable

__all__ = ["deformable_conv"]


def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    modulated: bool = True,
) -> Variable:
    """Convolves images, sampled where ``offset`` moves the elements of the kernel, with ``num_filters`` filters.

    Args:
      offset: by how much each element is moved down and across, of shape
        [samples, deformable_groups * kernel height * kernel width * 2, height, width] with the size of the result.
      mask: what each sample is multiplied by, with half as many channels; only if ``modulated``.
      filter_size, stride, padding, dilation: a number, or one for height and one for width.
      groups: the number of channel groups; each filter sees the channels of one group.
      deformable_groups: the number of channel groups that are moved alike.
      im2col_step: how many images real Fluid samples at once; here it changes no results.
      modulated: whether samples are multiplied by a mask (deformable convolutions, version 2).
    """
    require_floating("deformable_conv", input=input, offset=offset)
    if modulated:
        require_floating("deformable_conv", mask=mask)
    channels = input.shape[1]
    if groups is not None and (groups <= 0 or channels % groups):
        raise ValueError(f"deformable_conv: {channels} input channels are not divisible into {groups} groups")
    helper = LayerHelper("deformable_conv", input=input, param_attr=param_attr, bias_attr=bias_attr, name=name)
    kernel = per_dim(filter_size, 2, "filter_size")
    filters = helper.create_parameter(
        helper.param_attr,
        [num_filters, channels // (groups or 1), *kernel],
        input.dtype,
        default_initializer=Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * channels)), 0),
    )
    attrs = {
        "strides": per_dim(stride, 2, "stride"),
        "paddings": per_dim(padding, 2, "padding"),
        "dilations": per_dim(dilation, 2, "dilation"),
        "groups": groups or 1,
        "deformable_groups": deformable_groups or 1,
        "im2col_step": im2col_step or 64,
    }
    inputs = {"Input": input, "Filter": filters, "Offset": offset}
    if modulated:
        inputs["Mask"] = mask
    op_type = "deformable_conv" if modulated else "deformable_conv_v1"
    out = append_outputs(helper, inputs, {"Output": input.dtype}, attrs, op_type)["Output"]
    return helper.append_bias_op(out, dim_start=1, dim_end=2)
