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
        out, places = _found_by_masks((samples, height, width), regions.images, rows, columns, pixels)
    out, places = (values.reshape(shape).transpose(0, 3, 1, 2) for values in (out, places))
    return out, lax.stop_gradient(places).astype(jnp.int64)


@custom_vjp(0)
def _found_by_masks(shape, images, rows, columns, pixels):
    """What the kernel finds, with operations of any backend."""
    _, height, width = shape
    x = pixels.reshape(*shape, -1)
    lowest = jnp.finfo(x.dtype).min

    def find(region):
        image, rows, columns = region
        in_row, in_column = (
            (edges[:, :1] <= jnp.arange(size)) & (jnp.arange(size) < edges[:, 1:])
            for edges, size in ((rows, height), (columns, width))
        )
        best = jnp.where(in_column[:, None, :, None], x[image], lowest)  # [columns of bins, height, width, channels]
        column = jnp.argmax(best, 2)
        best = jnp.where(in_row[:, None, :, None], jnp.max(best, 2), lowest)  # [rows, columns, height, channels]
        row = jnp.argmax(best, 2)
        column = jnp.take_along_axis(column[None], row[:, :, None], 2)[:, :, 0]
        found = jnp.max(best, 2)
        is_empty = ~(in_row.any(1)[:, None] & in_column.any(1))[..., None]
        place = jnp.where(found > lowest, row * width + column, -1)
        return jnp.where(is_empty, 0, found), jnp.where(is_empty, -1, place).astype(x.dtype)

    found, places = lax.map(find, (images, rows, columns))
    return found.reshape(-1, pixels.shape[1]), places.reshape(-1, pixels.shape[1])


def _forward(shape, images, rows, columns, pixels):
    found, places = _found_by_masks(shape, images, rows, columns, pixels)
    bins = rows.shape[1] * columns.shape[1]
    return (found, places), (jnp.repeat(images, bins), places)


def _backward(shape, saved, gradients):
    images, places = saved
    _, height, width = shape
    count, channels = math.prod(shape), places.shape[1]
    rows = jnp.where(places >= 0, places.astype(jnp.int64) + (images * height * width)[:, None], count)
    of_pixels = jnp.zeros((count, channels), places.dtype)
    return None, None, None, of_pixels.at[rows, jnp.arange(channels)].add(gradients[0], mode="drop")


_found_by_masks.defvjp(_forward, _backward)
