"""Quadrilateral regions, straightened."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged
from refluid.ops.detection.boxes import round_half_up
from refluid.ops.detection.regions import Regions
from refluid.ops.detection.sampling import four_pixels, sum_rows

_CLOSE = 1e-4  # points that are closer than this to the border of a region are inside
_NOT_SINGULAR = 1e-5


def _infer(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, rois = inputs["X"][0], inputs["ROIs"][0]
    size = (attrs["transformed_height"], attrs["transformed_width"])
    out = ShapeDtype((rois.shape[0], x.shape[1], *size), x.dtype, lod_level=rois.lod_level)
    mask = ShapeDtype((rois.shape[0], 1, *size), np.dtype(np.int32))
    kept = {"Out2InIdx": ShapeDtype(out.shape, mask.dtype), "Out2InWeights": ShapeDtype(out.shape, x.dtype)}
    matrix = ShapeDtype((rois.shape[0], 9), x.dtype)
    return {name: [each] for name, each in {"Out": out, "Mask": mask, "TransformMatrix": matrix, **kept}.items()}


@op(
    "roi_perspective_transform",
    inputs="X ROIs",
    outputs="Out Mask TransformMatrix Out2InIdx Out2InWeights",
    differentiable="X",
    lod="aware",
    infer=_infer,
)
def roi_perspective_transform(x, rois, *, transformed_height, transformed_width, spatial_scale=1.0):
    """Each region as an upright image, with its aspect ratio; the mask tells what is inside of region and image.

    Real Fluid keeps two more outputs for its gradient, on GPUs only.
    """
    samples, channels, height, width = x.shape
    regions = Regions.of(rois, samples, coordinates=8)
    corners = lax.stop_gradient(regions.boxes).astype(x.dtype).reshape(-1, 4, 2) * spatial_scale
    matrix = _matrices(corners, transformed_height, transformed_width)
    column = jnp.arange(transformed_width, dtype=x.dtype)
    row = jnp.arange(transformed_height, dtype=x.dtype)[:, None]
    m = [matrix[:, i, None, None] for i in range(9)]
    depth = m[6] * column + m[7] * row + m[8]
    across, down = ((m[i] * column + m[i + 1] * row + m[i + 2]) / depth for i in (0, 3))
    inside = (across >= -0.5) & (across <= width - 0.5) & (down >= -0.5) & (down <= height - 0.5)
    inside &= _contains(corners[:, :, :, None, None], across, down)
    places = jnp.clip(down, 0, height - 1), jnp.clip(across, 0, width - 1)
    numbers, weights = four_pixels(*places, height, width)
    weights = jnp.where(inside[..., None], weights, 0)
    numbers += regions.images[:, None, None, None] * (height * width)
    pixels = x.transpose(0, 2, 3, 1).reshape(-1, channels)
    sums = sum_rows(pixels, numbers.reshape(-1, 4), weights.reshape(-1, 4))
    out = sums.reshape(*inside.shape, channels).transpose(0, 3, 1, 2)
    out = rois.with_data(out) if isinstance(rois, Ragged) else out
    return out, regions.result(inside[:, None].astype(jnp.int32)), regions.result(matrix), None, None


def _matrices(corners: Any, most_rows: int, most_columns: int) -> Any:
    """The maps from pixels of results to pixels of images, [regions, 9]; results are as wide as regions are."""
    sides = jnp.linalg.norm(jnp.roll(corners, -1, 1) - corners, axis=2)
    rows = max(2, most_rows)
    ratio = (sides[:, 0] + sides[:, 2]) / (sides[:, 1] + sides[:, 3])
    columns = jnp.clip(round_half_up(ratio * (rows - 1)) + 1, 2, max(2, most_columns))
    wide, high = jnp.where(jnp.isfinite(ratio), columns, 2) - 1, rows - 1
    (x0, x1, x2, x3), (y0, y1, y2, y3) = (tuple(corners[:, i, axis] for i in range(4)) for axis in (0, 1))
    right, lower, skew = (x1 - x2, y1 - y2), (x3 - x2, y3 - y2), (x0 - x1 + x2 - x3, y0 - y1 + y2 - y3)
    scale = right[0] * lower[1] - lower[0] * right[1] + _NOT_SINGULAR
    along = (skew[0] * lower[1] - lower[0] * skew[1]) / scale / wide
    below = (right[0] * skew[1] - skew[0] * right[1]) / scale / high
    return jnp.stack(
        [
            (x1 - x0 + along * wide * x1) / wide,
            (x3 - x0 + below * high * x3) / high,
            x0,
            (y1 - y0 + along * wide * y1) / wide,
            (y3 - y0 + below * high * y3) / high,
            y0,
            along,
            below,
            jnp.ones_like(x0),
        ],
        1,
    )


def _contains(corners: Any, x: Any, y: Any) -> Any:
    """Whether points are in a quadrilateral or on its border: a ray from them crosses an odd number of its sides."""
    crossings, on_border = 0, False
    for i in range(4):
        (x0, y0), (x1, y1) = ((corners[:, j, 0], corners[:, j, 1]) for j in (i, (i + 1) % 4))
        is_level = jnp.abs(y1 - y0) < _CLOSE
        at = (y - y0) * (x1 - x0) / jnp.where(is_level, 1, y1 - y0) + x0
        between_x, between_y = _between(x, x0, x1), _between(y, y0, y1)
        on_border |= jnp.where(is_level, (jnp.abs(y - y0) < _CLOSE) & between_x, (jnp.abs(at - x) < _CLOSE) & between_y)
        is_above = (y0 > y) != (y1 > y)
        crossings += (is_above & ~is_level & (at > x)).astype(jnp.int32)
    return on_border | (crossings % 2 == 1)


def _between(x: Any, end: Any, other: Any) -> Any:
    return (x >= jnp.minimum(end, other) - _CLOSE) & (x <= jnp.maximum(end, other) + _CLOSE)
