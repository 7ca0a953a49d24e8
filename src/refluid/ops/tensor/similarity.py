"""Similarity of tensors: cosines, bilinear forms, and agreement of channels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from refluid.ops.core.registry import op
from refluid.ops.core.shapes import require_as_many_rows, require_rows_like

# Lower bound on norms, so that the cosine with a row of zeros is 0.
_SMALLEST_NORM = 1e-4


@op("cos_sim", inputs="X Y", outputs="Out XNorm YNorm", differentiable="X Y", row_wise=True)
def cos_sim(x, y):
    """The cosine between rows of x and rows of y; a one-row y is compared with every row of x."""
    require_rows_like(x, y)
    x_rows, y_rows = x.reshape(x.shape[0], -1), y.reshape(y.shape[0], -1)
    x_norm, y_norm = _norm(x_rows), _norm(y_rows)
    cosine = (x_rows * y_rows).sum(1, keepdims=True) / (x_norm * y_norm)
    return cosine, stop_gradient(x_norm), stop_gradient(y_norm)


@jax.custom_jvp
def _norm(x):
    return jnp.maximum(jnp.sqrt((x * x).sum(1, keepdims=True)), _SMALLEST_NORM)


@_norm.defjvp
def _norm_jvp(primals, tangents):
    """x / norm even where the norm is bounded: Fluid's gradient, which avoids 0 / 0."""
    (x,), (dx,) = primals, tangents
    norm = _norm(x)
    return norm, (x * dx).sum(1, keepdims=True) / norm


@op("bilinear_tensor_product", inputs="X Y Weight Bias?", outputs="Out", row_wise=True)
def bilinear_tensor_product(x, y, weight, bias=None):
    """x^T weight[k] y + bias[k] for each k."""
    require_as_many_rows(X=x, Y=y)
    out = jnp.einsum("ni,kij,nj->nk", x, weight, y)
    return out if bias is None else out + bias.reshape(1, -1)


@op("fsp", inputs="X Y", outputs="Out", row_wise=True)
def fsp(x, y):
    """The products of channels of x and channels of y, averaged over the image."""
    return jnp.einsum("nchw,ndhw->ncd", x, y) / (x.shape[2] * x.shape[3])


@op("similarity_focus", inputs="X", outputs="Out", grad=None)
def similarity_focus(x, *, axis, indexes):
    """Ones at the largest entries of the chosen slices along ``axis``, no two of a slice in the same row or column."""
    if axis not in (1, 2, 3) or x.ndim != 4:
        raise ValueError(f"X must have 4 dims and axis must be 1, 2 or 3, not {axis}")
    slices = jnp.moveaxis(x, axis, 1)[:, jnp.asarray(indexes)]
    focus = jax.vmap(jax.vmap(_largest_entries))(slices).any(1, keepdims=True)
    return jnp.broadcast_to(jnp.moveaxis(focus, 1, axis), x.shape).astype(x.dtype)


def _largest_entries(matrix):
    """Greedily picks the largest entry, removes its row and column, and repeats."""
    rows, columns = matrix.shape

    def choose(_, state):
        chosen, free = state
        place = jnp.argmax(jnp.where(free, matrix, -jnp.inf))
        row, column = place // columns, place % columns
        return chosen.at[row, column].set(True), free.at[row].set(False).at[:, column].set(False)

    start = jnp.zeros(matrix.shape, bool), jnp.ones(matrix.shape, bool)
    return jax.lax.fori_loop(0, min(rows, columns), choose, start)[0]


@op("conv_shift", inputs="X Y", outputs="Out", row_wise=True)
def conv_shift(x, y):
    """The circular correlation of each row of x with the same row of y: out[i] = sum_j x[i + j - width // 2] * y[j]."""
    if x.ndim != 2 or y.ndim != 2 or y.shape[1] % 2 == 0 or y.shape[1] > x.shape[1]:
        raise ValueError("X and Y must be matrices; the width of Y must be odd and at most that of X")
    require_as_many_rows(X=x, Y=y)
    half = y.shape[1] // 2
    return sum(jnp.roll(x, half - j, axis=1) * y[:, j : j + 1] for j in range(y.shape[1]))
