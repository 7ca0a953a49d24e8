"""Regions pooled by the maximum of the pixels in each bin."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid import kernels
from refluid.ops.core.gradients import custom_vjp
from refluid.ops.core.registry import op
from refluid.ops.detection.regions import Regions, infer_bins, quotient, rounded


@op(
    "roi_pool",
    inputs="X ROIs RoisLod?",
    outputs="Out Argmax",
    differentiable="X",
    lod="aware",
    infer=infer_bins(Out=None, Argmax=np.dtype(np.int64)),
)
def roi_pool(x, rois, rois_lod=None, *, pooled_height=1, pooled_width=1, spatial_scale=1.0):
    """The largest pixel of each bin, and its number within the image; 0 and -1 if no pixel is in the bin."""
    regions = Regions.of(rois, x.shape[0], rois_lod)
    corner = rounded(regions.boxes * spatial_scale)
    rows = _bins(corner[:, 1], corner[:, 3] - corner[:, 1] + 1, pooled_height, x.shape[2])
    columns = _bins(corner[:, 0], corner[:, 2] - corner[:, 0] + 1, pooled_width, x.shape[3])
    out, places = _maxima(x, regions, rows, columns)
    return regions.result(out), regions.result(places)


def _bins(start: Any, extent: Any, bins: int, size: int) -> Any:
    """For each region and bin the first pixel, and one after the last, [regions, bins, 2]; bins may share pixels."""
    step = quotient(jnp.maximum(extent, 1), bins)[:, None]
    edge = jnp.arange(bins + 1, dtype=start.dtype)
    edges = jnp.stack([jnp.floor(edge[:-1] * step), jnp.ceil(edge[1:] * step)], -1) + start[:, None, None]
    return jnp.clip(edges, 0, size).astype(jnp.int64)


def _maxima(x: Any, regions: Regions, rows: Any, columns: Any) -> tuple[Any, Any]:
    samples, channels, height, width = x.shape
    shape = (*rows.shape[:2], columns.shape[1], channels)
    pixels = x.transpose(0, 2, 3, 1).reshape(-1, channels)
    kernel = kernels.find("region_max") if shape[0] and x.dtype == jnp.float32 else None
    if kernel is not None and height * width < kernel.LARGEST_IMAGE:
        out, places = kernel.find(regions.packed(height, width), rows.reshape(-1), columns.reshape(-1), pixels)
    else:
        out, places = _found_by_loops((samples, height, width), regions.images, rows, columns, pixels)
    out, places = (values.reshape(shape).transpose(0, 3, 1, 2) for values in (out, places))
    return out, lax.stop_gradient(places).astype(jnp.int64)


@custom_vjp(0)
def _found_by_loops(shape, images, rows, columns, pixels):
    """What the kernel finds, with operations of any backend: one pixel of all bins after the other."""
    width, channels = shape[2], pixels.shape[1]
    lowest, count = jnp.finfo(pixels.dtype).min, images.shape[0]
    first, high = images * (shape[1] * width), rows.shape[1]

    def look(found, x, x_places, counts):
        best, places = found
        larger = counts & (x > best)
        return jnp.where(larger, x, best), jnp.where(larger, x_places, places)

    def nothing(*bins):
        return tuple(jnp.full((count, *bins, channels), value, pixels.dtype) for value in (lowest, -1))

    def row_of_pixels(t, found):
        y = rows[:, :, 0].min(1) + t

        def pixel(i, best):
            place = (y * width)[:, None] + jnp.minimum(columns[:, :, 0] + i, width - 1)
            place = jnp.minimum(place, shape[1] * width - 1)  # regions that have ended look at any pixel
            counts = (columns[:, :, 0] + i < columns[:, :, 1])[..., None]
            return look(best, pixels[first[:, None] + place], place[..., None].astype(pixels.dtype), counts)

        best, places = lax.fori_loop(
            0, jnp.max(columns[:, :, 1] - columns[:, :, 0], initial=0), pixel, nothing(columns.shape[1])
        )
        inside = (rows[:, :, 0] <= y[:, None]) & (y[:, None] < rows[:, :, 1])
        return look(found, best[:, None], places[:, None], inside[..., None, None])

    most = jnp.max(rows[:, :, 1].max(1) - rows[:, :, 0].min(1), initial=0)
    out, places = lax.fori_loop(0, most, row_of_pixels, nothing(high, columns.shape[1]))
    is_empty = (rows[:, :, None, 0] >= rows[:, :, None, 1]) | (columns[:, None, :, 0] >= columns[:, None, :, 1])
    out = jnp.where(is_empty[..., None], 0, out)
    return out.reshape(-1, channels), places.reshape(-1, channels)


def _forward(shape, images, rows, columns, pixels):
    found, places = _found_by_loops(shape, images, rows, columns, pixels)
    bins = rows.shape[1] * columns.shape[1]
    return (found, places), (jnp.repeat(images, bins), places)


def _backward(shape, saved, gradients):
    images, places = saved
    _, height, width = shape
    count, channels = math.prod(shape), places.shape[1]
    rows = jnp.where(places >= 0, places.astype(jnp.int64) + (images * height * width)[:, None], count)
    of_pixels = jnp.zeros((count, channels), places.dtype)
    return None, None, None, of_pixels.at[rows, jnp.arange(channels)].add(gradients[0], mode="drop")


_found_by_loops.defvjp(_forward, _backward)
