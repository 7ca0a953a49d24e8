"""Elementwise ops on pairs and lists of tensors: the elementwise_* family, sum, scale, clip.

The elementwise_* ops differ from NumPy's broadcasting in one way: ``axis`` is the dim of the higher-rank operand at
which the other one begins. `aligned` turns that into plain broadcasting, for comparisons too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.control.stacked import Stacked
from refluid.ops.control.steps import Steps
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import broadcast_along_rows
from refluid.ops.core.values import SelectedRows, is_inexact


def aligned(x: Any, y: Any, axis: int) -> tuple[Any, Any]:
    """``x`` and ``y`` with dims of size 1 inserted, so that they broadcast as ``axis`` specifies."""
    if x.dtype != y.dtype:
        raise TypeError(f"X is {x.dtype} and Y is {y.dtype}: cast one of them")
    rank = max(x.ndim, y.ndim)
    if x.ndim >= y.ndim:
        y = y.reshape(_placed(y.shape, rank, axis))
    else:
        x = x.reshape(_placed(x.shape, rank, axis))
    if any(m != n and 1 not in (m, n) for m, n in zip(x.shape, y.shape, strict=True)):
        raise ValueError("Y does not fit X" if axis == -1 else f"Y does not fit X from axis {axis}")
    return x, y


def _placed(shape: tuple[int, ...], rank: int, axis: int) -> tuple[int, ...]:
    if axis == -1:
        axis = rank - len(shape)
    while axis + len(shape) > rank and shape[-1:] == (1,):  # trailing dims of size 1 may exceed the rank
        shape = shape[:-1]
    after = rank - axis - len(shape)
    if axis < 0 or after < 0:
        raise ValueError(f"{len(shape)} dims from axis {axis} on do not fit into {rank}")
    return (1,) * axis + shape + (1,) * after


def _divide(x, y):
    """x / y, rounded towards zero for integers."""
    return lax.div(*jnp.broadcast_arrays(x, y)) if jnp.issubdtype(x.dtype, jnp.integer) else x / y


def _power(x, y):
    """x ** y; integers are computed in floating point, like C's pow."""  # differs: lower-rank-first
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.round(jnp.power(x.astype(jnp.float64), y.astype(jnp.float64))).astype(x.dtype)
    return jnp.power(x, y)


def _mod(x, y):
    """The remainder, with the sign of y for floating point and of x for integers, as in Fluid."""
    return lax.rem(*jnp.broadcast_arrays(x, y)) if jnp.issubdtype(x.dtype, jnp.integer) else jnp.mod(x, y)


def _maximum(x, y):
    """max(x, y); at a tie the gradient goes to y."""
    return jnp.where(x > y, x, y)


def _minimum(x, y):
    """min(x, y); at a tie the gradient goes to y."""
    return jnp.where(x < y, x, y)


def register_pairwise(type: str, function: Callable[..., Any], **options: Any) -> None:
    """Registers a function of two broadcast arrays."""

    @op(type, inputs="X Y", outputs="Out", row_wise=broadcast_along_rows, **options)
    def rule(x, y, *, axis=-1):
        return function(*aligned(x, y, axis))

    rule.__doc__ = function.__doc__


register_pairwise("elementwise_add", jnp.add, slices="rows")
register_pairwise("elementwise_sub", jnp.subtract, slices="rows")
register_pairwise("elementwise_div", _divide, slices="rows")
register_pairwise("elementwise_max", _maximum, slices="rows")
register_pairwise("elementwise_min", _minimum, slices="rows")
register_pairwise("elementwise_pow", _power, slices="rows")
register_pairwise("elementwise_mod", _mod, slices="rows", grad=None)
register_pairwise("elementwise_floordiv", _divide, slices="rows", grad=None)


@op("elementwise_mul", inputs="X Y", outputs="Out", row_wise=broadcast_along_rows, slices="rows")
def elementwise_mul(x, y, *, axis=-1):
    """x * y; if x is SelectedRows, y must have one element."""
    if not isinstance(x, SelectedRows):
        return jnp.multiply(*aligned(x, y, axis))
    if y.size != 1:
        raise ValueError("X is a SelectedRows, so Y must have one element")
    return x.map_values(lambda values: values * y.reshape(()))


@op("minus", inputs="X Y", outputs="Out", row_wise=True)
def minus(x, y):
    """x - y, for equal shapes."""
    if x.shape != y.shape:
        raise ValueError("X and Y must have the same shape")
    return x - y


@op("sum", inputs="X*", outputs="Out", row_wise=True, slices="rows")
def sum_(xs, *, merges_rows=True):
    """The sum of all inputs. It is SelectedRows only if all of them are, with each row once, in order.

    Arrays of tensors are added position by position. Without ``merges_rows``, which is not of Fluid, rows may repeat.
    """
    if isinstance(xs[0], list):
        return [sum_([x for x in there if x is not None]) for there in zip_longest(*xs)]
    if isinstance(xs[0], Steps | Stacked):  # gradients of one array: their tensors are cut alike
        return jax.tree.map(lambda *parts: reduce(jnp.add, parts) if is_inexact(parts[0]) else parts[0], *xs)
    xs = [x for x in xs if 0 not in x.shape] or xs[:1]  # nothing is added by inputs without elements
    sparse = [x for x in xs if isinstance(x, SelectedRows)]
    dense = [x for x in xs if not isinstance(x, SelectedRows)]
    if len({(x.shape, x.dtype) for x in xs}) > 1:
        raise ValueError("the inputs must have the same shape and dtype")
    if not dense:
        rows = jnp.concatenate([x.rows for x in sparse])
        found = SelectedRows(rows, jnp.concatenate([x.values for x in sparse]), sparse[0].height)
        return found.merged() if merges_rows else found
    return reduce(lambda total, x: total.at[x.rows].add(x.values, mode="drop"), sparse, reduce(jnp.add, dense))


@op("scale", inputs="X ScaleTensor?", outputs="Out", differentiable="X", row_wise=True, slices="rows")
def scale(x, scale_tensor=None, *, scale=1.0, bias=0.0, bias_after_scale=True):
    """scale * x + bias, or scale * (x + bias); for integers, scale and bias are truncated first."""
    if isinstance(x, SelectedRows):
        return x.map_values(lambda values: _scale(values, scale_tensor, scale, bias, bias_after_scale))
    return _scale(x, scale_tensor, scale, bias, bias_after_scale)


def _scale(x, scale_tensor, scale, bias, bias_after_scale):
    factor = _constant(scale, x.dtype) if scale_tensor is None else scale_tensor.reshape(()).astype(x.dtype)
    offset = _constant(bias, x.dtype)
    return x * factor + offset if bias_after_scale else (x + offset) * factor


def _constant(number, dtype):
    """A number as one of ``dtype``; of unsigned integers, -1 is the largest, so that 1 - x works as in C."""
    unsigned = jnp.issubdtype(dtype, jnp.unsignedinteger)
    return jnp.asarray(int(number), jnp.int64).astype(dtype) if unsigned else jnp.asarray(number, dtype)


@op("clip", inputs="X Min? Max?", outputs="Out", differentiable="X", row_wise=True, slices="rows")
def clip(x, min_tensor=None, max_tensor=None, *, min=0.0, max=0.0):
    """x clipped to [min, max]; SelectedRows are merged first, because clipping does not distribute over addition."""
    if min_tensor is None and max_tensor is None and min > max:
        raise ValueError(f"min {min} is larger than max {max}")
    low = min if min_tensor is None else min_tensor.reshape(())
    high = max if max_tensor is None else max_tensor.reshape(())
    if isinstance(x, SelectedRows):
        return x.merged().map_values(lambda values: clamp(values, low, high))
    return clamp(x, low, high)


def clamp(x, low, high):
    """x clipped to [low, high]; the gradient passes only strictly inside, as everywhere in Fluid."""
    low, high = jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype)
    return jnp.where((x > low) & (x < high), x, lax.stop_gradient(jnp.clip(x, low, high)))


def absolute(x):
    """The absolute value, with gradient 0 at 0; JAX's is 1 there."""
    return x * jnp.sign(x)


@op("clip_by_norm", inputs="X", outputs="Out", grad=None, slices="norm")
def clip_by_norm(x, *, max_norm):
    """x, scaled down to Euclidean norm max_norm if its norm is larger."""
    if isinstance(x, SelectedRows):
        return x.merged().map_values(lambda values: _shorten(values, max_norm))
    return _shorten(x, max_norm)


def _shorten(x, max_norm):
    norm = jnp.sqrt(jnp.sum(jnp.square(x)))
    return x * jnp.where(norm > max_norm, max_norm / norm, 1).astype(x.dtype)
