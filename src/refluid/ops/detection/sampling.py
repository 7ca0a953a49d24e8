"""Images sampled at fractional places."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid import kernels


def sum_rows(rows: Any, places: Any, weights: Any) -> Any:
    """out[i] = sum over t of weights[i, t] * rows[places[i, t]].

    Args:
      rows: [rows, columns].
      places: row numbers, [sums, taps]; all of them must exist.
      weights: as many.
    """
    kernel = kernels.find("taps") if weights.size and rows.dtype == weights.dtype == jnp.float32 else None
    if kernel is not None:
        return kernel.gather(places.astype(jnp.int64).reshape(-1), weights, rows)
    return jnp.einsum("it,itc->ic", weights, rows[places])


def four_pixels(y: Any, x: Any, height: int, width: int) -> tuple[Any, Any]:
    """The numbers of the four pixels around each place and their weights, on a new last axis.

    Pixels outside of the image have no weight.
    """
    y, x = _settled(y, height), _settled(x, width)
    top, left = jnp.floor(y), jnp.floor(x)
    low, right = y - top, x - left
    numbers, weights = [], []
    for row, down in ((top, 1 - low), (top + 1, low)):
        for column, across in ((left, 1 - right), (left + 1, right)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weights.append(jnp.where(inside, down * across, 0))
            place = jnp.clip(row, 0, height - 1) * width + jnp.clip(column, 0, width - 1)
            numbers.append(place.astype(jnp.int64))
    return jnp.stack(numbers, -1), jnp.stack(weights, -1)


def _settled(places: Any, size: int) -> Any:
    """Places within rounding errors of a pixel, on that pixel; gradients pass unchanged.

    XLA computes a place for the numbers of pixels, and again for their weights, and may round it differently: below an
    integer here and above it there, so that the weights were those of other pixels.
    """
    error = 2 * float(jnp.finfo(places.dtype).eps)

    @jax.custom_jvp
    def settled(places):
        nearest = jnp.round(places)
        return jnp.where(jnp.abs(places - nearest) <= error * jnp.maximum(jnp.abs(places), size), nearest, places)

    settled.defjvp(lambda primals, tangents: (settled(*primals), *tangents))
    return settled(places)
