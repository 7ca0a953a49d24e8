"""Convolutions whose kernel elements are moved at every position, by offsets that another layer predicts.

differs: images-at-once
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in
from refluid.ops.detection.sampling import four_pixels, sum_rows

_ROWS = sequences_only_in("Input", "Offset", "Mask")


def _infer(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, offset, weight = (inputs[slot][0] for slot in ("Input", "Offset", "Filter"))
    mask = inputs["Mask"][0] if inputs.get("Mask") else None
    window = (attrs.get(name, (default,) * 2) for name, default in (("strides", 1), ("paddings", 0), ("dilations", 1)))
    size = _output_size(x, weight, *window)
    _require_shapes(x, offset, mask, weight, size, attrs.get("groups", 1), attrs.get("deformable_groups", 1))
    return {"Output": [ShapeDtype((x.shape[0], weight.shape[0], *size), x.dtype)]}


# Sizes that are not known cannot stand for each other: the result may be smaller than the image.
@op("deformable_conv", inputs="Input Offset Mask Filter", outputs="Output", infer=_infer, row_wise=_ROWS)
def deformable_conv(
    x,
    offset,
    mask,
    filter,
    *,
    strides=(1, 1),
    paddings=(0, 0),
    dilations=(1, 1),
    groups=1,
    deformable_groups=1,
    im2col_step=64,
):
    """A convolution of the image sampled at moved places, each sample times a mask."""
    return _convolution(x, offset, mask, filter, strides, paddings, dilations, groups, deformable_groups)


@op("deformable_conv_v1", inputs="Input Offset Filter", outputs="Output", infer=_infer, row_wise=_ROWS)
def deformable_conv_v1(
    x,
    offset,
    filter,
    *,
    strides=(1, 1),
    paddings=(0, 0),
    dilations=(1, 1),
    groups=1,
    deformable_groups=1,
    im2col_step=64,
):
    """A convolution of the image sampled at moved places."""
    return _convolution(x, offset, None, filter, strides, paddings, dilations, groups, deformable_groups)


def _convolution(
    x: Any,
    offset: Any,
    mask: Any,
    weight: Any,
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    moved_groups: int,
) -> Any:
    samples, channels, height, width = x.shape
    filters, _, *kernel = weight.shape
    size = _output_size(x, weight, strides, paddings, dilations)
    _require_shapes(x, offset, mask, weight, size, groups, moved_groups)
    elements = math.prod(kernel)
    # [samples, rows, columns, kernel elements, groups that move together]
    moves = offset.reshape(samples, moved_groups, elements, 2, *size).transpose(3, 0, 4, 5, 2, 1)
    down, across = (
        (jnp.arange(n) * stride - pad)[:, None] + jnp.arange(k) * dilation
        for n, stride, pad, k, dilation in zip(size, strides, paddings, kernel, dilations, strict=True)
    )
    down = jnp.broadcast_to(down[:, None, :, None], (*size, *kernel)).reshape(*size, elements, 1)
    across = jnp.broadcast_to(across[None, :, None, :], (*size, *kernel)).reshape(*size, elements, 1)
    numbers, weights = four_pixels(down + moves[0], across + moves[1], height, width)
    if mask is not None:
        weights *= mask.reshape(samples, moved_groups, elements, *size).transpose(0, 3, 4, 2, 1)[..., None]
    image = jnp.arange(samples)[:, None, None, None, None, None] * (height * width)
    numbers = (numbers + image) * moved_groups + jnp.arange(moved_groups)[:, None]
    rows = x.transpose(0, 2, 3, 1).reshape(-1, channels // moved_groups)
    columns = sum_rows(rows, numbers.reshape(-1, 4), weights.reshape(-1, 4))
    return _product(columns, weight, groups).reshape(samples, *size, filters).transpose(0, 3, 1, 2)


def _output_size(
    x: Any, weight: Any, strides: Sequence[int], paddings: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Height and width of the result; -1 where that of the image is not known."""
    if len(x.shape) != 4 or len(weight.shape) != 4:
        raise ValueError(f"Input {list(x.shape)} and Filter {list(weight.shape)} must have 4 dims")
    window = zip(x.shape[2:], weight.shape[2:], strides, paddings, dilations, strict=True)
    return [
        -1 if n < 0 else (n + 2 * pad - (dilation * (kernel - 1) + 1)) // stride + 1
        for n, kernel, stride, pad, dilation in window
    ]


def _product(columns: Any, weight: Any, groups: int) -> Any:
    """[positions, kernel elements, channels] times the filters."""
    filters, depth, *kernel = weight.shape
    elements = math.prod(kernel)
    weight = weight.reshape(groups, filters // groups, depth, elements)
    if groups == 1:
        return columns.reshape(-1, elements * depth) @ weight[0].transpose(2, 1, 0).reshape(-1, filters)
    columns = columns.reshape(-1, elements, groups, depth)
    return jnp.einsum("mkgc,gfck->mgf", columns, weight)


def _require_shapes(
    x: Any, offset: Any, mask: Any, weight: Any, size: Sequence[int], groups: int, moved_groups: int
) -> None:
    samples, channels = x.shape[:2]
    if channels % moved_groups:
        raise ValueError(f"deformable_groups={moved_groups} does not divide the {channels} channels of Input")
    if weight.shape[0] % groups or channels != weight.shape[1] * groups:
        raise ValueError(f"Filter {list(weight.shape)} does not fit Input {list(x.shape)} in {groups} groups")
    elements = math.prod(weight.shape[2:])
    for slot, value, count in (("Offset", offset, 2), ("Mask", mask, 1)):
        expected = [samples, count * moved_groups * elements, *size]
        if value is not None and not _may_equal(value.shape, expected):
            raise ValueError(f"{slot} must have shape {expected}, but has {list(value.shape)}")


def _may_equal(shape: Sequence[int], other: Sequence[int]) -> bool:
    return len(shape) == len(other) and all(m == n or -1 in (m, n) for m, n in zip(shape, other, strict=True))
