"""Regions pooled by sampling and by integrating an image that is interpolated between its pixels.

Interpolation works on rows and columns separately: a bin is a product of weights of rows and weights of columns.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid.ops.core.registry import op
from refluid.ops.detection.regions import Regions, infer_bins, pool_regions, quotient, region_offsets

# Points of a bin that can be within a pixel of one: if there are several, they are at least half a pixel apart.
_NEAR = 7


@op(
    "roi_align",
    inputs="X ROIs RoisLod?",
    outputs="Out",
    differentiable="X",
    lod="aware",
    infer=infer_bins(),
)
def roi_align(x, rois, rois_lod=None, *, pooled_height=1, pooled_width=1, spatial_scale=1.0, sampling_ratio=-1):
    """Means of points in each bin, interpolated between four pixels; ``sampling_ratio`` by ``sampling_ratio`` points.

    If it is not positive, points are at most a pixel apart.
    """
    regions = Regions.of(rois, x.shape[0], rois_lod)
    boxes = jax.lax.stop_gradient(regions.boxes).astype(x.dtype) * spatial_scale
    start, extent = boxes[:, :2], jnp.maximum(boxes[:, 2:] - boxes[:, :2], 1)
    weights = _sampled if sampling_ratio > 0 else _sampled_closely
    down = weights(start[:, 1], extent[:, 1], pooled_height, x.shape[2], sampling_ratio)
    across = weights(start[:, 0], extent[:, 0], pooled_width, x.shape[3], sampling_ratio)
    return regions.result(pool_regions(x, regions, down, across))


def _sampled(start: Any, extent: Any, bins: int, size: int, samples: int) -> Any:
    """The weights of pixels, [regions, bins, size], in the mean of as many points as ``samples`` in each bin."""
    step = quotient(extent, bins)[:, None, None]
    bin_ = jnp.arange(bins, dtype=start.dtype)[:, None]
    point = jnp.arange(samples, dtype=start.dtype)
    places = start[:, None, None] + bin_ * step + (point + 0.5) * step / samples
    return _tent(places[..., None], jnp.arange(size, dtype=start.dtype), size).sum(2) / samples


def _sampled_closely(start: Any, extent: Any, bins: int, size: int, _: int) -> Any:
    """The same for as many points as bins have pixels, rounded up: their number depends on the region.

    So instead of all points of a bin, those near each pixel are looked at.
    """
    step = quotient(extent, bins)[:, None, None]
    count = jnp.ceil(step)
    first = start[:, None, None] + jnp.arange(bins, dtype=start.dtype)[:, None] * step
    pixel = jnp.arange(size, dtype=start.dtype)
    nearest = jnp.maximum(jnp.floor((pixel - 1 - first) * count / step - 0.5), 0)
    total = 0
    for i in range(_NEAR):
        point = nearest + i
        places = first + (point + 0.5) * step / count
        total += jnp.where(point < count, _tent(places, pixel, size), 0)
    return total / count


def _tent(places: Any, pixel: Any, size: int) -> Any:
    """The weight of a pixel at a place; places up to a pixel outside of the image count as its border."""
    inside = (places >= -1) & (places <= size)
    return jnp.where(inside, jnp.maximum(1 - jnp.abs(jnp.clip(places, 0, size - 1) - pixel), 0), 0)


@op(
    "prroi_pool",
    inputs="X ROIs BatchRoINums?",
    outputs="Out",
    differentiable="X ROIs",
    lod="aware",
    infer=infer_bins(),
)
def prroi_pool(x, rois, counts=None, *, pooled_height=1, pooled_width=1, spatial_scale=1.0):
    """The mean over each bin of the interpolated image, which is zero outside; differentiable in the regions.

    differs: region-without-width
    """
    regions = Regions.of(rois, x.shape[0], region_offsets(counts))
    boxes = regions.boxes.astype(x.dtype) * spatial_scale
    start, extent = boxes[:, :2], jnp.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    down = _integrated(start[:, 1], extent[:, 1], pooled_height, x.shape[2])
    across = _integrated(start[:, 0], extent[:, 0], pooled_width, x.shape[3])
    return regions.result(pool_regions(x, regions, down, across))


def _integrated(start: Any, extent: Any, bins: int, size: int) -> Any:
    """The weights of pixels, [regions, bins, size], in the mean of the interpolated image over each bin."""
    step = quotient(extent, bins)[:, None, None]
    begin = start[:, None, None] + jnp.arange(bins, dtype=start.dtype)[:, None] * step
    pixel = jnp.arange(size, dtype=start.dtype)
    weight = _area(begin + step - pixel) - _area(begin - pixel)
    return jnp.where(step > 0, weight / jnp.where(step > 0, step, 1), 0)


def _area(x: Any) -> Any:
    """The area below a tent of height 1 over [-1, 1], to the left of x."""
    left, right = jnp.clip(x, -1, 0) + 1, jnp.clip(x, 0, 1)
    return (left * left + right * (2 - right)) / 2
