"""Sums per channel over all pixels, as batch_norm needs them. Images are matrices with a row per pixel.

XLA adds what it has fused into a sum one element at a time, one channel after the other, or in several passes over
memory. Here threads share blocks of rows; how many blocks there are depends on the shape only.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import MODE, argument, attribute, result
from refluid.kernels.products import ZERO, fast, fill

_WORTH_A_THREAD = 1 << 15  # elements
_SMALLEST_BLOCK, _MOST_BLOCKS = 64, 64  # rows, blocks
_SUM, _SQUARES, _PRODUCTS = range(3)


# The loops of each pass read so few rows that LLVM still checks for overlaps, and vectorises them.
@fast
def _add(total, a, b, c):
    for k in range(total.shape[0]):
        total[k] += a[k] + b[k] + c[k]


@fast
def _add_row(total, a):
    for k in range(total.shape[0]):
        total[k] += a[k]


@fast
def _add_squares(total, center, a, b, c):
    for k in range(total.shape[0]):
        middle = center[k]
        x, y, z = a[k] - middle, b[k] - middle, c[k] - middle
        total[k] += x * x + y * y + z * z


@fast
def _add_square(total, center, a):
    for k in range(total.shape[0]):
        x = a[k] - center[k]
        total[k] += x * x


@fast
def _add_products(total, center, a, g, b, h):
    for k in range(total.shape[0]):
        middle = center[k]
        total[k] += g[k] * (a[k] - middle) + h[k] * (b[k] - middle)


@fast
def _add_product(total, center, a, g):
    for k in range(total.shape[0]):
        total[k] += g[k] * (a[k] - center[k])


@fast
def _sum_rows(x, begin, end, total):
    fill(total, ZERO)
    i = begin
    while i + 3 <= end:
        _add(total, x[i], x[i + 1], x[i + 2])
        i += 3
    while i < end:
        _add_row(total, x[i])
        i += 1


@fast
def _sum_squares(x, center, begin, end, total):
    fill(total, ZERO)
    i = begin
    while i + 3 <= end:
        _add_squares(total, center, x[i], x[i + 1], x[i + 2])
        i += 3
    while i < end:
        _add_square(total, center, x[i])
        i += 1


@fast
def _sum_products(x, center, g, begin, end, total, weighted):
    fill(total, ZERO)
    fill(weighted, ZERO)
    i = begin
    while i + 2 <= end:
        _add_row(total, g[i])
        _add_row(total, g[i + 1])
        _add_products(weighted, center, x[i], g[i], x[i + 1], g[i + 1])
        i += 2
    if i < end:
        _add_row(total, g[i])
        _add_product(weighted, center, x[i], g[i])


def _work(frame, part, parts):
    mode, x, out = attribute(frame, MODE), argument(frame, 0), result(frame, 0)
    blocks, rows = out.shape[0], x.shape[0]
    for block in range(blocks * part // parts, blocks * (part + 1) // parts):
        begin, end = rows * block // blocks, rows * (block + 1) // blocks
        if mode == _SUM:
            _sum_rows(x, begin, end, out[block])
        elif mode == _SQUARES:
            _sum_squares(x, argument(frame, 1)[0], begin, end, out[block])
        else:
            g, weighted = argument(frame, 2), result(frame, 1)
            _sum_products(x, argument(frame, 1)[0], g, begin, end, out[block], weighted[block])


_kernel = Kernel("channel_sums", _work)


def _call(mode: int, results: int, x: Any, *others: Any) -> list[Any]:
    blocks = min(max(1, x.shape[0] // _SMALLEST_BLOCK), _MOST_BLOCKS)
    arguments = [x, *(value.reshape(-1, x.shape[1]) for value in others)]
    by_block = _kernel(arguments, [(blocks, x.shape[1])] * results, max(1, x.size // _WORTH_A_THREAD), mode)
    return [total.sum(0) for total in by_block]


@jax.custom_vjp
def sums(x: Any) -> Any:
    """The sum of the rows of x."""
    return _call(_SUM, 1, x)[0]


@jax.custom_vjp
def squares(x: Any, center: Any) -> Any:
    """The sum of the squares of x - center, row by row."""
    return _call(_SQUARES, 1, x, center)[0]


@jax.custom_vjp
def products(x: Any, center: Any, g: Any) -> tuple[Any, Any]:
    """The sums of g, and of g * (x - center), row by row."""
    total, weighted = _call(_PRODUCTS, 2, x, center, g)
    return total, weighted


def _squares_backward(saved, incoming):
    x, center = saved
    return 2 * incoming * (x - center), -2 * incoming * (sums(x) - x.shape[0] * center)


def _products_backward(saved, incoming):
    x, center, g = saved
    of_total, of_weighted = incoming
    return of_weighted * g, -of_weighted * sums(g), of_total + of_weighted * (x - center)


sums.defvjp(lambda x: (sums(x), x), lambda x, incoming: (jnp.broadcast_to(incoming, x.shape),))
squares.defvjp(lambda *given: (squares(*given), given), _squares_backward)
products.defvjp(lambda *given: (products(*given), given), _products_backward)
