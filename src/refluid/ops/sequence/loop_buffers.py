"""Helpers of compiled recurrences: buffers for the rows of all steps, and products that the backward loop reuses.

The forward loop saves the products of rows with weights. The backward loop reuses them and saves their gradients, so
that one large product after the loop gives the gradient of each weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax


def slices(buffers: Sequence[Any], start: Any, width: int) -> list[Any]:
    """The ``width`` rows of each buffer from ``start`` on."""
    return [lax.dynamic_slice_in_dim(buffer, start, width) for buffer in buffers]


def written(buffers: Sequence[Any], values: Sequence[Any], start: Any) -> list[Any]:
    """The buffers with new rows from ``start`` on."""
    return [lax.dynamic_update_slice_in_dim(b, v, start, 0) for b, v in zip(buffers, values, strict=True)]


@jax.custom_vjp
def known_product(product, rows, transposed):
    """``product``, known to be something + rows @ transposed.T; no gradient for the matrix."""
    return product


known_product.defvjp(
    lambda product, rows, transposed: (product, transposed),
    lambda transposed, g: (g, g @ transposed, None),
)


def weight_gradient(rows: Any, d_products: Any) -> Any:
    """The gradient of a matrix that all ``rows`` were multiplied by."""
    return lax.dot_general(rows, d_products, (((0,), (0,)), ((), ())))
