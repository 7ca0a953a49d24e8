"""Ops that move pixels between channels, positions and frames; unpooling and spatial pyramid pooling."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.registry import op


@op("space_to_depth", inputs="X", outputs="Out")
def space_to_depth(x, *, blocksize=1):
    """Moves pixels into channels, in the order of Darknet's reorg layer.

    It first builds a larger image with fewer channels, then reshapes it: not what the name promises, but what models
    are trained with.
    """
    samples, channels, height, width = x.shape
    if channels % blocksize**2 or height % blocksize or width % blocksize:
        raise ValueError(
            f"blocksize={blocksize} must divide height and width, and its square the channels, of X {list(x.shape)}"
        )
    blocks = x.reshape(samples, blocksize, blocksize, channels // blocksize**2, height, width)
    larger = blocks.transpose(0, 3, 4, 1, 5, 2)
    return larger.reshape(samples, channels * blocksize**2, height // blocksize, width // blocksize)


@op("pixel_shuffle", inputs="X", outputs="Out")
def pixel_shuffle(x, *, upscale_factor=1):
    """Moves groups of ``upscale_factor ** 2`` channels into blocks of pixels."""
    samples, channels, height, width = x.shape
    factor = upscale_factor
    if factor < 1 or channels % factor**2:
        raise ValueError(f"the square of upscale_factor={factor} does not divide the {channels} channels of X")
    blocks = x.reshape(samples, channels // factor**2, factor, factor, height, width)
    return blocks.transpose(0, 1, 4, 2, 5, 3).reshape(samples, channels // factor**2, height * factor, width * factor)


@op("shuffle_channel", inputs="X", outputs="Out")
def shuffle_channel(x, *, group=1):
    """Interleaves the channels of ``group`` groups."""
    samples, channels, *place = x.shape
    if group < 1 or channels % group:
        raise ValueError(f"group={group} does not divide the {channels} channels of X")
    return x.reshape(samples, group, channels // group, *place).swapaxes(1, 2).reshape(x.shape)


@op("shuffle_channel_grad", inputs="X Out@GRAD", outputs="X@GRAD", lod=None)
def shuffle_channel_grad(x, out_grad, *, group=1):
    """Fluid's gradient, which shuffles again instead of undoing the shuffle.

    It is the derivative only if group * group is the number of channels; Fluid's models were trained with it.
    """
    return shuffle_channel(out_grad, group=group)


@op("temporal_shift", inputs="X", outputs="Out")
def temporal_shift(x, *, seg_num=1, shift_ratio=0.25):
    """Takes the first ``shift_ratio`` of the channels from the previous frame, the same share again from the next."""
    frames, channels, *place = x.shape
    if seg_num < 1 or frames % seg_num:
        raise ValueError(f"seg_num={seg_num} does not divide the {frames} frames of X")
    if not 0 < shift_ratio < 0.5:
        raise ValueError(f"shift_ratio must be between 0 and 0.5, not {shift_ratio}")
    clips = x.reshape(frames // seg_num, seg_num, channels, math.prod(place))
    first, second = int(channels * shift_ratio), int(channels * 2 * shift_ratio)
    padded = jnp.pad(clips, [(0, 0), (1, 1), (0, 0), (0, 0)])
    before, after = padded[:, :-2, :first], padded[:, 2:, first:second]
    return jnp.concatenate([before, after, clips[:, :, second:]], 2).reshape(x.shape)


@op("unpool", inputs="X Indices", outputs="Out", differentiable="X")
def unpool(x, indices, *, ksize=(), strides=(1, 1), paddings=(0, 0), unpooling_type="max"):
    """Puts each element where max pooling found it, zeros elsewhere."""
    if unpooling_type != "max":
        raise ValueError(f"unpooling_type must be max, not {unpooling_type}")
    samples, channels, *size = x.shape
    height, width = (
        (n - 1) * stride - 2 * pad + kernel
        for n, stride, pad, kernel in zip(size, strides, paddings, ksize, strict=True)
    )
    require_in_range(indices, height * width, slot="Indices")
    rows = jnp.arange(samples * channels, dtype=jnp.int32)[:, None]
    out = jnp.zeros((samples * channels, height * width), x.dtype)
    places = indices.reshape(samples * channels, math.prod(size))
    return out.at[rows, places].set(x.reshape(places.shape)).reshape(samples, channels, height, width)


@op("unpool_grad", inputs="X Indices Out@GRAD", outputs="X@GRAD", lod=None)
def unpool_grad(x, indices, out_grad):
    """The gradient at each element's position, even if two elements share one."""
    samples, channels, *size = x.shape
    places = indices.reshape(samples * channels, math.prod(size))
    return jnp.take_along_axis(out_grad.reshape(samples * channels, -1), places, 1).reshape(x.shape)


@op("spp", inputs="X", outputs="Out")
def spp(x, *, pyramid_height=1, pooling_type="max"):
    """Pools x into 1, 2x2, 4x4, ... bins and concatenates them: the length does not depend on the image size."""
    if pooling_type not in ("max", "avg"):
        raise ValueError(f"pooling_type must be max or avg, not {pooling_type}")
    pool = _largest if pooling_type == "max" else _average
    return jnp.concatenate([pool(x, 2**level).reshape(x.shape[0], -1) for level in range(pyramid_height)], 1)


def _largest(x: Any, bins: int) -> Any:
    windows = _windows(x, bins, float(jnp.finfo(x.dtype).min))
    # By index, so that only the first of equal elements gets the gradient.
    return jnp.take_along_axis(windows, jnp.argmax(windows, -1, keepdims=True), -1)[..., 0]


def _average(x: Any, bins: int) -> Any:
    present = _windows(jnp.ones((1, 1, *x.shape[2:]), x.dtype), bins, 0.0)
    return _windows(x, bins, 0.0).sum(-1) / present.sum(-1)


def _windows(x: Any, bins: int, filling: float) -> Any:
    """x cut into ``bins`` by ``bins`` windows, with the elements of each along the last axis."""
    samples, channels, *size = x.shape
    kernels = [math.ceil(n / bins) for n in size]
    padding = [(kernel * bins - n + 1) // 2 for n, kernel in zip(size, kernels, strict=True)]
    after = [bins * kernel - n - pad for n, kernel, pad in zip(size, kernels, padding, strict=True)]
    sides = [(0, 0, 0), (0, 0, 0), *((pad, end, 0) for pad, end in zip(padding, after, strict=True))]
    padded = lax.pad(x, jnp.asarray(filling, x.dtype), sides)
    cut = padded.reshape(samples, channels, bins, kernels[0], bins, kernels[1]).transpose(0, 1, 2, 4, 3, 5)
    return cut.reshape(samples, channels, bins, bins, math.prod(kernels))
