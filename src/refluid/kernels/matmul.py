"""The product of two matrices, either of them transposed, shared between XLA's threads.

XLA's own products use one core where these use two, or walk slowly through transposed matrices: see
docs/decisions/0004-matrix-products.md.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

import jax
from numpy.lib.stride_tricks import as_strided

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import MODE, argument, attribute, result
from refluid.kernels.products import fast
from refluid.kernels.tiles import ROWS, WIDTH, multiply

_WORTH_A_THREAD = 1 << 20  # multiplications
_BY_TRANSPOSE, _OF_TRANSPOSE = 1, 2


@fast
def _multiply_part(out, a, b, part, parts):
    """One part of out = a @ b: whole tiles along the side that has more of them."""
    height, width = out.shape
    if height // ROWS > width // WIDTH:
        tiles = (height + ROWS - 1) // ROWS
        begin, end = tiles * part // parts * ROWS, min(tiles * (part + 1) // parts * ROWS, height)
        multiply(out[begin:end], a[begin:end], b)
    else:
        tiles = (width + WIDTH - 1) // WIDTH
        begin, end = tiles * part // parts * WIDTH, min(tiles * (part + 1) // parts * WIDTH, width)
        multiply(out[:, begin:end], a, b[:, begin:end])


@fast
def _matrix(values, is_transposed):
    """A matrix or its transpose. Both have the same type, so that functions that take them are compiled once."""
    (height, width), (row, column) = values.shape, values.strides
    if is_transposed:
        return as_strided(values, (width, height), (column, row))
    return as_strided(values, (height, width), (row, column))


def _work(frame, part, parts):
    x = _matrix(argument(frame, 0), attribute(frame, MODE) == _OF_TRANSPOSE)
    y = _matrix(argument(frame, 1), attribute(frame, MODE) == _BY_TRANSPOSE)
    _multiply_part(result(frame, 0), x, y, part, parts)


_kernel = Kernel("matmul", _work)


class Form(Enum):
    """What is multiplied. The gradients of each form are products of the others."""

    PLAIN = 0  # x @ y
    BY_TRANSPOSE = _BY_TRANSPOSE  # x @ y.T
    OF_TRANSPOSE = _OF_TRANSPOSE  # x.T @ y


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def matmul(form: Form, x: Any, y: Any) -> Any:
    """The product of two float32 matrices."""
    height, depth = x.shape[::-1] if form is Form.OF_TRANSPOSE else x.shape
    y_depth, width = y.shape[::-1] if form is Form.BY_TRANSPOSE else y.shape
    if depth != y_depth:
        raise ValueError(f"matrices of {x.shape} and {y.shape} do not fit as {form.name}")
    most_parts = max(1, height * depth * width // _WORTH_A_THREAD)
    return _kernel((x, y), [(height, width)], most_parts, form.value)[0]


def _forward(form, x, y):
    return matmul(form, x, y), (x, y)


def _backward(form, operands, gradient):
    x, y = operands
    if form is Form.PLAIN:
        return matmul(Form.BY_TRANSPOSE, gradient, y), matmul(Form.OF_TRANSPOSE, x, gradient)
    if form is Form.BY_TRANSPOSE:
        return matmul(Form.PLAIN, gradient, y), matmul(Form.OF_TRANSPOSE, gradient, x)
    return matmul(Form.BY_TRANSPOSE, y, gradient), matmul(Form.PLAIN, x, gradient)


matmul.defvjp(_forward, _backward)
