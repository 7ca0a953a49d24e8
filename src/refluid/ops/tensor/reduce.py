"""Reductions, norms and cumulative sums. Fluid's scalars have shape [1]."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.core.dtypes import numpy_dtype
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import Arguments, not_along_rows
from refluid.ops.core.values import Ragged, plain
from refluid.ops.tensor.elementwise import absolute, aligned

Axes = tuple[int, ...]


def _lowest(dtype: Any) -> Any:
    return -math.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    return math.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).max


def _extreme(select: Callable[..., Any], which: str, of_nothing: Callable[[Any], Any]) -> Callable[[Any, Axes], Any]:
    """A maximum or minimum whose full gradient goes to every element that attains it, as in Fluid."""

    @partial(jax.custom_jvp, nondiff_argnums=(1,))
    def extreme(x, axes):
        return select(x, axis=axes, keepdims=True, initial=None if x.size else of_nothing(x.dtype))

    @extreme.defjvp
    def _(axes, primals, tangents):
        (x,), (tangent,) = primals, tangents
        result = extreme(x, axes)
        return result, jnp.sum(jnp.where(x == result, tangent, 0), axis=axes, keepdims=True)

    extreme.__doc__ = f"The {which} element; all that attain it receive the whole gradient."
    return extreme


_largest, _smallest = _extreme(jnp.max, "largest", _lowest), _extreme(jnp.min, "smallest", _highest)


def _sum(x, axes):
    """The sum of the elements."""
    return jnp.sum(x, axis=axes, keepdims=True, dtype=x.dtype)


def _mean(x, axes, rows=None):
    """The mean of the elements, truncated for integers. ``rows`` is the number of real rows."""
    count = math.prod(x.shape[axis] for axis in axes if axis or rows is None)
    count = jnp.asarray(count if rows is None else count * rows, x.dtype)
    total = _sum(x, axes)
    return lax.div(total, jnp.broadcast_to(count, total.shape))


def _prod(x, axes):
    """The product of the elements."""
    return jnp.prod(x, axis=axes, keepdims=True, dtype=x.dtype)


def _all(x, axes):
    """Whether all elements are true."""
    return jnp.all(x, axis=axes, keepdims=True)


def _any(x, axes):
    """Whether any element is true."""
    return jnp.any(x, axis=axes, keepdims=True)


def _euclidean(x, axes):
    """The square root of the sum of squares."""
    return _root(_sum(jnp.square(x), axes), 2.0)


def _register(type: str, function: Callable[..., Any], neutral: Any, **options: Any) -> None:
    """Registers a reduction; ``neutral`` is its identity element, or a function that makes it from a dtype."""

    @op(type, inputs="X", outputs="Out", lod="aware", **options)
    def rule(x, *, dim=(0,), keep_dim=False, reduce_all=False, out_dtype=-1):
        axes, counted = _axes(dim, x.ndim, reduce_all), {}
        if isinstance(x, Ragged) and 0 in axes:
            counted = {"rows": x.rows} if function is _mean else {}
            x = x.masked(neutral(x.dtype) if callable(neutral) else neutral)  # padding does not count
        rows = plain(x)
        result = function(rows if out_dtype < 0 else rows.astype(numpy_dtype(out_dtype)), axes, **counted)
        result = result if keep_dim else _squeezed(result, axes)
        return x.with_data(result) if isinstance(x, Ragged) else result

    rule.__doc__ = function.__doc__


def _axes(dim: Sequence[int] | int, rank: int, reduce_all: bool) -> Axes:
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if reduce_all or not dims:
        return tuple(range(rank))
    if any(not -rank <= d < rank for d in dims):
        raise ValueError(f"dim {list(dims)} is not among the {rank} dims of X")
    return tuple(sorted({d % rank for d in dims}))


def _squeezed(x, axes: Axes):
    x = x.squeeze(axes)
    return x.reshape(x.shape or (1,))


_register("reduce_sum", _sum, 0, slices="sum")
_register("reduce_mean", _mean, 0)
_register("reduce_max", _largest, _lowest)
_register("reduce_min", _smallest, _highest)
_register("reduce_prod", _prod, 1)
_register("frobenius_norm", _euclidean, 0)
_register("reduce_all", _all, True, grad=None)
_register("reduce_any", _any, False, grad=None)


@op("mean", inputs="X", outputs="Out", lod="aware")
def mean(x):
    """The mean of all elements."""
    if isinstance(x, Ragged):
        count = x.rows * math.prod(x.shape[1:])
        return (jnp.sum(x.masked()) / count.astype(x.dtype)).reshape(1)
    return jnp.mean(x).reshape(1)


@op("squared_l2_norm", inputs="X", outputs="Out", lod="aware", slices="sum")
def squared_l2_norm(x):
    """The sum of all squares."""
    x = x.masked() if isinstance(x, Ragged) else x
    return jnp.sum(jnp.square(x)).reshape(1)


@op("l1_norm", inputs="X", outputs="Out", lod="aware")
def l1_norm(x):
    """The sum of all absolute values."""
    x = x.masked() if isinstance(x, Ragged) else x
    return jnp.sum(absolute(x)).reshape(1)


@op("norm", inputs="X", outputs="Out Norm", lod=None, row_wise=not_along_rows("axis"))
def norm(x, *, axis, epsilon=1e-10):
    """x divided by its Euclidean norm along axis, and that norm."""
    length = jnp.sqrt(_sum(jnp.square(x), axis) + jnp.asarray(epsilon, x.dtype))
    return x / length, lax.stop_gradient(length)  # Norm is scratch: Fluid sends no gradient through it


@op("p_norm", inputs="X", outputs="Out", row_wise=not_along_rows("axis"))
def p_norm(x, *, porder=2.0, axis=-1, keepdim=False):
    """(sum of |x| ** porder) ** (1 / porder) along axis."""
    axes = (axis % x.ndim,)
    result = _p_norm(x, porder, axes)
    return result if keepdim else _squeezed(result, axes)


@op("dist", inputs="X Y", outputs="Out", lod=None)
def dist(x, y, *, p=2.0):
    """The p-norm of x - y; p = 0 counts the differences, p = +-inf takes the largest or smallest."""
    x, y = aligned(x, y, -1)
    difference = x - y
    axes = tuple(range(difference.ndim))
    if p == 0:
        return jnp.sum(difference != 0, dtype=x.dtype).reshape(1)
    if math.isinf(p):
        return (_largest if p > 0 else _smallest)(absolute(difference), axes).reshape(1)
    return _p_norm(difference, p, axes).reshape(1)


def _p_norm(x, order: float, axes: Axes):
    return _root(_sum(absolute(x) ** order, axes), order)


def _root(x, order: float):
    """x ** (1 / order), with gradient 0 at 0."""
    positive = x > 0
    return jnp.where(positive, jnp.where(positive, x, 1) ** (1.0 / order), 0)


def _runs_away_from_padding(attrs: dict[str, Any], arguments: Arguments) -> bool:
    """Padding follows the real rows, so forward sums do not include it."""
    return not attrs.get("reverse") or attrs.get("axis", -1) % arguments["X"][0].ndim > 0


@op("cumsum", inputs="X", outputs="Out", row_wise=_runs_away_from_padding)
def cumsum(x, *, axis=-1, exclusive=False, reverse=False):
    """Cumulative sums along axis; exclusive ones omit the element itself, reverse ones run from the end."""
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} is not an axis of a tensor with {x.ndim} dims")
    axis %= x.ndim
    x = jnp.flip(x, axis) if reverse else x
    if exclusive:
        before = [(1, 0) if i == axis else (0, 0) for i in range(x.ndim)]
        x = lax.slice_in_dim(jnp.pad(x, before), 0, x.shape[axis], axis=axis)
    total = jnp.cumsum(x, axis, dtype=x.dtype)
    return jnp.flip(total, axis) if reverse else total
