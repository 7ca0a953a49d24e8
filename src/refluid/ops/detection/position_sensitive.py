"""Regions whose bins have channels of their own: of n x m groups of channels, a bin reads one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import plain
from refluid.ops.detection.regions import Regions, infer_bins, pool_regions, quotient, rounded
from refluid.ops.detection.sampling import four_pixels, sum_rows


@op(
    "psroi_pool",
    inputs="X ROIs",
    outputs="Out",
    differentiable="X",
    lod="aware",
    infer=infer_bins("output_channels"),
)
def psroi_pool(x, rois, *, output_channels, pooled_height=1, pooled_width=1, spatial_scale=1.0):
    """Means of the pixels of each bin."""
    groups = _groups(x, output_channels, pooled_height, pooled_width)
    regions = Regions.of(rois, x.shape[0])
    start = rounded(regions.boxes[:, :2]) * spatial_scale
    extent = jnp.maximum((rounded(regions.boxes[:, 2:]) + 1) * spatial_scale - start, 0.1)
    down = _means(start[:, 1], extent[:, 1], pooled_height, x.shape[2])
    across = _means(start[:, 0], extent[:, 0], pooled_width, x.shape[3])
    # Every bin is a region of its own, in the image of its group.
    count, bins = down.shape[0], pooled_height * pooled_width
    images = regions.images[:, None] * bins + jnp.arange(bins)
    single = replace(regions, images=images.reshape(-1), real=regions.real * bins)
    shape = (count, pooled_height, pooled_width)
    down = jnp.broadcast_to(down[:, :, None], (*shape, x.shape[2])).reshape(-1, 1, x.shape[2])
    across = jnp.broadcast_to(across[:, None], (*shape, x.shape[3])).reshape(-1, 1, x.shape[3])
    out = pool_regions(groups.reshape(-1, output_channels, *x.shape[2:]), single, down, across)
    return regions.result(out.reshape(*shape, output_channels).transpose(0, 3, 1, 2))


def _groups(x: Any, channels: int, high: int, wide: int) -> Any:
    """The images of each group of channels, [samples, groups down, groups across, channels, height, width]."""
    if x.ndim != 4 or x.shape[1] != channels * high * wide:
        raise ValueError(f"the image must have {channels} x {high} x {wide} channels, but has shape {list(x.shape)}")
    return x.reshape(x.shape[0], channels, high, wide, *x.shape[2:]).transpose(0, 2, 3, 1, 4, 5)


def _means(start: Any, extent: Any, bins: int, size: int) -> Any:
    """The weights of pixels, [regions, bins, size], in the mean over each bin."""
    step, edge = quotient(extent, bins)[:, None], jnp.arange(bins + 1, dtype=start.dtype)
    begin = jnp.clip(jnp.floor(edge[:-1] * step + start[:, None]), 0, size)[..., None]
    end = jnp.clip(jnp.ceil(edge[1:] * step + start[:, None]), 0, size)[..., None]
    pixel = jnp.arange(size, dtype=start.dtype)
    return ((begin <= pixel) & (pixel < end)).astype(start.dtype) / jnp.maximum(end - begin, 1)


def _infer_deformable(inputs: Described, attrs: dict[str, Any]) -> Described:
    x = inputs["Input"][0]
    shape = (inputs["ROIs"][0].shape[0], attrs["output_dim"], attrs["pooled_height"], attrs["pooled_width"])
    return {slot: [ShapeDtype(shape, x.dtype)] for slot in ("Output", "TopCount")}


@op(
    "deformable_psroi_pooling",
    inputs="Input ROIs Trans",
    outputs="Output TopCount",
    differentiable="Input Trans",
    lod="aware",
    infer=_infer_deformable,
)
def deformable_psroi_pooling(
    x,
    rois,
    trans,
    *,
    no_trans,
    spatial_scale,
    output_dim,
    group_size,
    pooled_height,
    pooled_width,
    part_size,
    sample_per_part,
    trans_std,
):
    """Means of ``sample_per_part`` by ``sample_per_part`` points of each bin, and how many of them are in the image.

    Trans moves the parts of a region, by shares of its size times ``trans_std`` (differs: moved-parts).
    """
    groups = _groups(x, output_dim, *group_size)
    regions = Regions.of(rois, x.shape[0])
    shifts, classes = _shifts(plain(trans), regions, no_trans, output_dim, part_size, (pooled_height, pooled_width))
    boxes = lax.stop_gradient(regions.boxes)
    start = rounded(boxes[:, :2]) * spatial_scale - 0.5
    extent = jnp.maximum((rounded(boxes[:, 2:]) + 1) * spatial_scale - 0.5 - start, 0.1)
    places = [
        _points(start[:, i], extent[:, i], bins, sample_per_part, shifts[:, :, i] * trans_std, axis)
        for i, bins, axis in ((1, pooled_height, 2), (0, pooled_width, 3))
    ]
    y, x_ = jnp.broadcast_arrays(places[0][..., :, None], places[1][..., None, :])
    height, width = x.shape[2:]
    inside = (y >= -0.5) & (y <= height - 0.5) & (x_ >= -0.5) & (x_ <= width - 0.5)
    count = inside.sum((-2, -1))  # of [regions, classes, rows, columns, points down, points across]
    numbers, weights = four_pixels(jnp.clip(y, 0, height - 1), jnp.clip(x_, 0, width - 1), height, width)
    weights = jnp.where(inside[..., None], weights, 0) / jnp.maximum(count, 1)[..., None, None, None]
    # Rows of pixels, by sample, group and class of channels.
    rows = groups.reshape(x.shape[0], -1, classes, output_dim // classes, height * width).transpose(0, 1, 2, 4, 3)
    group = _group_of_bins(group_size, (pooled_height, pooled_width))
    image = regions.images[:, None, None, None] * rows.shape[1] + group
    image = image * classes + jnp.arange(classes)[:, None, None]
    numbers = numbers + (image * (height * width))[..., None, None, None]
    taps = 4 * sample_per_part**2
    sums = sum_rows(rows.reshape(-1, rows.shape[-1]), numbers.reshape(-1, taps), weights.reshape(-1, taps))
    shape = (regions.images.shape[0], output_dim, pooled_height, pooled_width)
    out = sums.reshape(shape[0], classes, *shape[2:], -1).transpose(0, 1, 4, 2, 3).reshape(shape)
    count = jnp.broadcast_to(count.astype(x.dtype)[:, :, None], (shape[0], classes, output_dim // classes, *shape[2:]))
    return regions.result(out), regions.result(count.reshape(shape))


def _shifts(
    trans: Any, regions: Regions, no_trans: bool, channels: int, part_size: Any, bins: tuple[int, int]
) -> tuple[Any, int]:
    """The shift of every bin in x and y, [regions, classes, 2, rows, columns], and the number of classes."""
    count = regions.boxes.shape[0]
    if no_trans:
        return jnp.zeros((count, 1, 2, *bins), trans.dtype), 1
    high, wide = part_size
    classes = trans.shape[1] // 2
    if trans.shape != (count, 2 * classes, high, wide) or not classes or channels % classes:
        raise ValueError(
            f"Trans must have shape [{count}, 2 x classes, {high}, {wide}] with classes that divide output_dim="
            f"{channels}, but has {list(trans.shape)}"
        )
    rows, columns = (
        np.floor(np.arange(n, dtype=np.float32) / np.float32(n) * np.float32(parts)).astype(np.int32)
        for n, parts in zip(bins, (high, wide), strict=True)
    )
    return trans.reshape(count, classes, 2, high, wide)[:, :, :, rows[:, None], columns], classes


def _points(start: Any, extent: Any, bins: int, samples: int, shifts: Any, axis: int) -> Any:
    """The coordinates of points along one axis, [regions, classes, rows, columns, samples]."""
    step = quotient(extent, bins)[:, None, None, None]
    along = [1] * 4
    along[axis] = bins
    begin = jnp.arange(bins, dtype=start.dtype).reshape(along) * step + start[:, None, None, None]
    begin = begin + shifts * extent[:, None, None, None]
    return begin[..., None] + jnp.arange(samples, dtype=start.dtype) * quotient(step, samples)[..., None]


def _group_of_bins(group_size: Any, bins: tuple[int, int]) -> np.ndarray:
    """The group of channels that each bin reads, [rows, columns]."""
    rows, columns = (
        np.clip(np.arange(n) * groups // n, 0, groups - 1) for n, groups in zip(bins, group_size, strict=True)
    )
    return rows[:, None] * group_size[1] + columns
