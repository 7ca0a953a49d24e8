"""Spatial transformers: affine sampling grids, and images sampled at grid points."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from refluid.ops.core.infer import Described, ShapeDtype, described_like
from refluid.ops.core.registry import op
from refluid.ops.core.static import integers


@op(
    "affine_grid",
    inputs="Theta OutputShape?",
    outputs="Output",
    differentiable="Theta",
    infer=described_like("Theta", lambda theta: ShapeDtype((theta.shape[0], -1, -1, 2), theta.dtype), out="Output"),
    static="OutputShape",
    lod=None,
)
def affine_grid(theta, given_shape=None, *, output_shape=()):
    """theta applied to every pixel's coordinates, which run from -1 to 1, corner to corner."""
    _, _, height, width = integers(output_shape, given_shape)
    across = jnp.linspace(-1, 1, width, dtype=theta.dtype)
    down = jnp.linspace(-1, 1, height, dtype=theta.dtype)
    places = jnp.stack([*jnp.meshgrid(across, down), jnp.ones((height, width), theta.dtype)], -1)
    return jnp.einsum("hwk,nik->nhwi", places, theta)


def _infer_sampled(inputs: Described, attrs: dict[str, Any]) -> Described:
    # The size of an affine grid is unknown before the run; Fluid assumes that of x.
    x, grid = inputs["X"][0], inputs["Grid"][0]
    place = (size if size >= 0 else known for size, known in zip(grid.shape[1:3], x.shape[2:], strict=True))
    return {"Output": [ShapeDtype((*x.shape[:2], *place), x.dtype)]}


@op("grid_sampler", inputs="X Grid", outputs="Output", infer=_infer_sampled)
def grid_sampler(x, grid):
    """x at the grid points, interpolated between four pixels; pixels outside x are zero."""
    samples, channels, height, width = x.shape
    across = (grid[..., 0] + 1) * ((width - 1) * 0.5)
    down = (grid[..., 1] + 1) * ((height - 1) * 0.5)
    left, top = jnp.floor(across), jnp.floor(down)
    flat = x.reshape(samples, channels, height * width)

    def pixel(row: Any, column: Any) -> Any:
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        index = jnp.clip(row, 0, height - 1) * width + jnp.clip(column, 0, width - 1)
        found = jnp.take_along_axis(flat, index.astype(jnp.int32).reshape(samples, 1, -1), 2)
        return found.reshape(samples, channels, *index.shape[1:]) * inside[:, None].astype(x.dtype)

    right_share, bottom_share = (across - left)[:, None], (down - top)[:, None]
    upper = pixel(top, left) * (1 - right_share) + pixel(top, left + 1) * right_share
    lower = pixel(top + 1, left) * (1 - right_share) + pixel(top + 1, left + 1) * right_share
    return upper * (1 - bottom_share) + lower * bottom_share
