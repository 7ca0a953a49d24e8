"""The convolution ops: Fluid's layouts and attributes on top of the products."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in
from refluid.ops.nn.conv.products import correlate, spread
from refluid.ops.nn.conv.window import Window, as_given, channels_last, explicit_pads
from refluid.ops.nn.eight_bits import Scales, is_8_bit


def _window(dims, kernel, strides, paddings, padding_algorithm, dilations, groups) -> Window:
    if len(strides) != len(dims) or len(dilations) != len(dims):
        raise ValueError(f"strides {list(strides)} and dilations {list(dilations)} must hold {len(dims)} numbers each")
    if padding_algorithm == "SAME":  # Fluid then ignores the dilations
        dilations = (1,) * len(dims)
    pads = explicit_pads(paddings, padding_algorithm, dims, kernel, strides)
    return Window(tuple(kernel), tuple(strides), tuple(dilations), pads, groups)


def _convolve(x, w, strides, paddings, padding_algorithm, dilations, groups, data_format):
    groups = groups or 1
    x = channels_last(x, data_format)
    if x.ndim != w.ndim:
        raise ValueError(f"Input has {x.ndim} dims and Filter has {w.ndim}")
    if x.shape[-1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ValueError(
            f"Input of {x.shape[-1]} channels and Filter of shape {list(w.shape)} do not go together in {groups} groups"
        )
    dims = x.shape[1:-1]
    window = _window(dims, w.shape[2:], strides, paddings, padding_algorithm, dilations, groups)
    positions = window.positions(dims)
    if min(positions) <= 0:
        raise ValueError(
            f"a kernel that reaches over {list(window.reach)} does not fit into {list(dims)} with {window.pads}"
        )
    w = jnp.moveaxis(w, (0, 1), (-1, -2))
    return as_given(correlate(x, w, window.fitted(dims, positions)), data_format)


def _convolve_transposed(x, w, strides, paddings, padding_algorithm, dilations, groups, output_size, data_format):
    groups = groups or 1
    x = channels_last(x, data_format)
    if x.shape[-1] != w.shape[0] or w.shape[0] % groups:
        raise ValueError(
            f"Input of {x.shape[-1]} channels and Filter of shape {list(w.shape)} do not go together in {groups} groups"
        )
    positions = x.shape[1:-1]
    window = _window(positions, w.shape[2:], strides, paddings, padding_algorithm, dilations, groups)
    sides = zip(positions, window.strides, window.reach, window.pads, strict=True)
    dims = tuple((n - 1) * s + r - low - high for n, s, r, (low, high) in sides)
    if output_size:
        for natural, wanted, stride in zip(dims, output_size, window.strides, strict=True):
            if not natural <= wanted < natural + stride:
                raise ValueError(
                    f"output_size {list(output_size)} must be at least {list(dims)} and below that plus the strides"
                )
        dims = tuple(output_size)
    w = jnp.moveaxis(w, (0, 1), (-1, -2))
    return as_given(spread(x, w, window.fitted(dims, positions), dims), data_format)


def _with_bias(out, bias, data_format):
    return out if bias is None else as_given(channels_last(out, data_format) + bias.reshape(-1), data_format)


def _activated(out, fuse_activation, fuse_alpha, fuse_relu=False, fuse_brelu=False, fuse_brelu_threshold=6.0):
    """The activation that a pass for MKL-DNN has fused into a convolution; Fluid 1.5 has flags for relu and relu6."""
    if fuse_activation == "relu" or fuse_relu:
        return jax.nn.relu(out)
    if fuse_activation == "relu6" or fuse_brelu:
        return jnp.clip(out, 0, fuse_alpha if fuse_activation else fuse_brelu_threshold)
    if fuse_activation == "leaky_relu":
        return jnp.where(out > 0, out, fuse_alpha * out)
    if fuse_activation == "swish":
        return out * jax.nn.sigmoid(fuse_alpha * out)
    if fuse_activation:
        raise ValueError(f"fuse_activation must be relu, relu6, leaky_relu or swish, not {fuse_activation}")
    return out


_conv2d = partial(
    op,
    inputs="Input Filter Bias? ResidualData?",
    outputs="Output",
    row_wise=sequences_only_in("Input", "ResidualData"),
)


@_conv2d("depthwise_conv2d")
@_conv2d("conv2d")
def conv2d(
    x,
    w,
    bias=None,
    residual=None,
    *,
    strides=(1, 1),
    paddings=(0, 0),
    padding_algorithm="EXPLICIT",
    dilations=(1, 1),
    groups=1,
    data_format="AnyLayout",
    fuse_activation="",
    fuse_alpha=0.0,
    fuse_relu=False,
    fuse_brelu=False,
    fuse_brelu_threshold=6.0,
    Scale_in=1.0,
    Scale_weights=(1.0,),
    Scale_out=1.0,
    Scale_in_eltwise=1.0,
    force_fp32_output=False,
):
    """The correlation of images with filters [O, C / groups, H, W], plus bias and residual if given, then activated."""
    scales = Scales(Scale_in, Scale_weights, Scale_out, force_fp32_output) if is_8_bit(x) else None
    if scales:
        x, w = x.astype(jnp.float32), scales.of_weight(w, axis=0)
        bias = None if bias is None else scales.of_bias(bias)
        residual = None if residual is None else residual * jnp.float32(scales.output / Scale_in_eltwise)
    out = _convolve(x, w, strides, paddings, padding_algorithm, dilations, groups, data_format)
    out = _with_bias(out, bias, data_format)
    if scales:
        out = scales.of_sums(out, axis=-1 if data_format == "NHWC" else 1)
    out = out if residual is None else out + residual
    out = _activated(out, fuse_activation, fuse_alpha, fuse_relu, fuse_brelu, fuse_brelu_threshold)
    return out if scales is None else scales.stored(out, _kind(fuse_activation, fuse_relu or fuse_brelu))


def _kind(fuse_activation, has_flag):
    """The name of the activation; those that have a flag in Fluid 1.5 are kinds of relu."""
    return "relu" if has_flag else fuse_activation


@op("conv3d", inputs="Input Filter ResidualData?", outputs="Output")
def conv3d(
    x,
    w,
    residual=None,
    *,
    strides=(1, 1, 1),
    paddings=(0, 0, 0),
    padding_algorithm="EXPLICIT",
    dilations=(1, 1, 1),
    groups=1,
    data_format="AnyLayout",
    fuse_activation="",
    fuse_alpha=0.0,
    fuse_relu=False,
):
    """The correlation of volumes with filters [O, C / groups, D, H, W], plus residual if given, then activated."""
    out = _convolve(x, w, strides, paddings, padding_algorithm, dilations, groups, data_format)
    return _activated(out if residual is None else out + residual, fuse_activation, fuse_alpha, fuse_relu)


@op("depthwise_conv2d_transpose", inputs="Input Filter Bias?", outputs="Output")
@op("conv2d_transpose", inputs="Input Filter Bias?", outputs="Output")
def conv2d_transpose(
    x,
    w,
    bias=None,
    *,
    output_size=(),
    strides=(1, 1),
    paddings=(0, 0),
    padding_algorithm="EXPLICIT",
    dilations=(1, 1),
    groups=1,
    data_format="AnyLayout",
    fuse_activation="",
    fuse_alpha=0.0,
    fuse_relu=False,
):
    """The transpose of conv2d in its input, activated; filters are [C, O / groups, H, W]."""
    out = _convolve_transposed(x, w, strides, paddings, padding_algorithm, dilations, groups, output_size, data_format)
    return _activated(_with_bias(out, bias, data_format), fuse_activation, fuse_alpha, fuse_relu)


@op("conv3d_transpose", inputs="Input Filter", outputs="Output")
def conv3d_transpose(
    x,
    w,
    *,
    output_size=(),
    strides=(1, 1, 1),
    paddings=(0, 0, 0),
    padding_algorithm="EXPLICIT",
    dilations=(1, 1, 1),
    groups=1,
    data_format="AnyLayout",
):
    """The transpose of conv3d in its input; filters are [C, O / groups, D, H, W]."""
    return _convolve_transposed(x, w, strides, paddings, padding_algorithm, dilations, groups, output_size, data_format)
