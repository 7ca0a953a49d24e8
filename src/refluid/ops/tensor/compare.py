"""Ops with boolean results: comparisons, logic, and tests for infinities and NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import broadcast_along_rows
from refluid.ops.core.values import SelectedRows
from refluid.ops.tensor.elementwise import aligned, register_pairwise


def _equal(x, y):
    """x == y; floating-point numbers less than 1e-8 apart are equal, as in Fluid."""
    same = x == y
    return same | (jnp.abs(x - y) < 1e-8) if jnp.issubdtype(x.dtype, jnp.floating) else same


def _not_equal(x, y):
    """x != y; floating-point numbers less than 1e-8 apart are equal."""
    return ~_equal(x, y)


# differs: narrow-comparison
register_pairwise("less_than", jnp.less, grad=None)
register_pairwise("less_equal", jnp.less_equal, grad=None)
register_pairwise("greater_than", jnp.greater, grad=None)
register_pairwise("greater_equal", jnp.greater_equal, grad=None)
register_pairwise("equal", _equal, grad=None)
register_pairwise("not_equal", _not_equal, grad=None)


def _register_logic(type: str, function: Callable[..., Any]) -> None:
    @op(type, inputs="X Y", outputs="Out", grad=None, row_wise=True)
    def rule(x, y):
        if x.size != y.size:
            raise ValueError("X and Y must have the same number of elements")
        return function(x, y.reshape(x.shape))

    rule.__doc__ = function.__doc__


_register_logic("logical_and", jnp.logical_and)
_register_logic("logical_or", jnp.logical_or)
_register_logic("logical_xor", jnp.logical_xor)


@op("logical_not", inputs="X", outputs="Out", grad=None, row_wise=True)
def logical_not(x):
    """not x."""
    return jnp.logical_not(x)


def _register_test(type: str, function: Callable[..., Any]) -> None:
    # Padding rows are copies or zeros, so they do not change the result.
    @op(type, inputs="X", outputs="Out", grad=None, lod=None, row_wise=True)
    def rule(x):
        values = x.values if isinstance(x, SelectedRows) else x
        return function(values).reshape(1)

    rule.__doc__ = function.__doc__


_register_test("isfinite", lambda x: jnp.all(jnp.isfinite(x)))
_register_test("isinf", lambda x: jnp.any(jnp.isinf(x)))
_register_test("isnan", lambda x: jnp.any(jnp.isnan(x)))


@op("allclose", inputs="Input Other", outputs="Out", grad=None, lod=None, row_wise=True)
def allclose(x, y, *, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether |x - y| <= atol + rtol * |y| everywhere."""
    if x.shape != y.shape or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError("Input and Other must be floating-point tensors of the same shape")
    return jnp.allclose(x, y, rtol, atol, equal_nan).reshape(1)


@op("equal_reduce", inputs="X Y", outputs="Out", grad=None, lod=None, row_wise=broadcast_along_rows)
def equal_reduce(x, y, *, axis=-1):
    """Whether x and y are equal everywhere."""
    return jnp.all(_equal(*aligned(x, y, axis))).reshape(1)
