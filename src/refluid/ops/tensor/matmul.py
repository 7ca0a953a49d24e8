"""Matrix products and related linear algebra."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from refluid import kernels
from refluid.ops.core.registry import lookup, op
from refluid.ops.core.row_wise import Arguments, has_columns, sequences_only_in
from refluid.ops.core.values import Ragged
from refluid.ops.nn.eight_bits import Scales, is_8_bit

# The kernel takes products with this range of multiplications, a Y that fits in cache, and no very short side.
_KERNEL_FROM, _KERNEL_TO, _KERNEL_MATRIX, _KERNEL_SIDE = 1 << 19, 1 << 25, 1 << 19, 16


def _product(x, y):
    """x @ y for matrices, by the kernel if it suits them."""
    kernel = kernels.find("matmul") if kernels.enabled() and _suits_kernel(x, y) else None
    return kernel.matmul(kernel.Form.PLAIN, x, y) if kernel else x @ y


def _suits_kernel(x, y):
    if x.dtype != jnp.float32 or y.dtype != jnp.float32 or min(*x.shape, *y.shape) < _KERNEL_SIDE:
        return False
    return y.size < _KERNEL_MATRIX and _KERNEL_FROM <= x.size * y.shape[1] <= _KERNEL_TO


@op("mul", inputs="X Y", outputs="Out", row_wise=sequences_only_in("X"), matrix="Y")
def mul(x, y, *, x_num_col_dims=1, y_num_col_dims=1):
    """x @ y as matrices: the first ``num_col_dims`` dims are folded into the rows, the others into the columns."""
    rows, columns = x.shape[:x_num_col_dims], y.shape[y_num_col_dims:]
    inner = math.prod(x.shape[x_num_col_dims:])
    if inner != math.prod(y.shape[:y_num_col_dims]):
        raise ValueError("the dims of X from x_num_col_dims on and of Y up to y_num_col_dims hold different numbers")
    product = _product(x.reshape(math.prod(rows), inner), y.reshape(inner, math.prod(columns)))
    return product.reshape(rows + columns)


def _rows_stay(attrs: dict[str, Any], arguments: Arguments) -> bool:
    """The matrices of a batch count as rows; otherwise only the rows of X do, unless X is transposed."""
    (x,), (y,) = arguments["X"], arguments["Y"]
    if x.ndim > 2:
        return y.ndim > 2 or not isinstance(y, Ragged)
    return x.ndim == 2 and not attrs.get("transpose_X") and not isinstance(y, Ragged)


@op("matmul", inputs="X Y", outputs="Out", row_wise=_rows_stay, matrix="Y")
def matmul(
    x,
    y,
    *,
    transpose_X=False,
    transpose_Y=False,
    alpha=1.0,
    fused_transpose_Out=(),
    fused_reshape_Out=(),
    Scale_x=1.0,
    Scale_y=1.0,
    Scale_out=1.0,
    force_fp32_output=False,
):
    """alpha * x @ y over the last two dims; a 1-D x is a row, a 1-D y a column, before transposing.

    Passes for MKL-DNN fuse a transposition and a reshape of the result, and use 8-bit integers.
    """
    if is_8_bit(x):
        scales = Scales(Scale_x, (Scale_y,), Scale_out, force_fp32_output)
        sums = _matrix_product(x.astype(jnp.float32), y.astype(jnp.float32), transpose_X, transpose_Y, alpha)
        out = scales.stored(scales.of_sums(sums), activation="")
    else:
        out = _matrix_product(x, y, transpose_X, transpose_Y, alpha)
    out = out.transpose(fused_transpose_Out) if fused_transpose_Out else out
    return lookup("reshape").rule(out, None, None, shape=fused_reshape_Out) if fused_reshape_Out else out


def _matrix_product(x, y, transpose_x, transpose_y, alpha):
    x_is_vector, y_is_vector = x.ndim == 1, y.ndim == 1
    x = x[None, :] if x_is_vector else x
    y = y[:, None] if y_is_vector else y
    x = jnp.swapaxes(x, -1, -2) if transpose_x else x
    y = jnp.swapaxes(y, -1, -2) if transpose_y else y
    if x.shape[-1] != y.shape[-2]:
        raise ValueError("X must have as many columns as Y has rows, after transposing")
    if x.ndim == y.ndim == 2 and not transpose_x and not transpose_y:
        product = _product(x, y)
    else:
        product = x @ _with_batch_of(x, y)
    if alpha != 1.0:
        product = product * jnp.asarray(alpha, product.dtype)
    if x_is_vector and product.shape[-2] == 1:
        product = product.squeeze(-2)
    if y_is_vector and product.shape[-1] == 1:
        product = product.squeeze(-1)
    return product.reshape(product.shape or (1,))


def _with_batch_of(x, y):
    """``y`` with the batch dims of ``x``; Fluid only compares the number of matrices."""
    if x.ndim == 2 or y.ndim == 2 or x.shape[:-2] == y.shape[:-2]:
        return y
    if math.prod(x.shape[:-2]) != math.prod(y.shape[:-2]):
        raise ValueError("X and Y hold different numbers of matrices")
    return y.reshape(x.shape[:-2] + y.shape[-2:])


@op("bmm", inputs="X Y", outputs="Out", row_wise=True)
def bmm(x, y):
    """x @ y for each pair of matrices of a batch."""
    if x.ndim != 3 or y.ndim != 3 or x.shape[0] != y.shape[0]:
        raise ValueError("X and Y must be batches of as many matrices")
    return x @ y


@op("addmm", inputs="Input X Y", outputs="Out", row_wise=sequences_only_in("Input", "X"))
def addmm(input, x, y, *, Alpha=1.0, Beta=1.0):
    """Beta * input + Alpha * x @ y."""
    return jnp.asarray(Beta, x.dtype) * input + jnp.asarray(Alpha, x.dtype) * (x @ y)


@op("dot", inputs="X Y", outputs="Out", row_wise=has_columns())
def dot(x, y):
    """The inner product of two vectors, or of each pair of rows."""
    return jnp.sum(x * y, axis=-1, keepdims=True, dtype=x.dtype)


@op("kron", inputs="X Y", outputs="Out")
def kron(x, y):
    """The Kronecker product."""
    return jnp.kron(x, y)


@op("cross", inputs="X Y", outputs="Out")
def cross(x, y, *, dim=9):
    """The cross product along dim; the default, 9, means the first dim of size 3."""
    if 3 not in (x.shape if dim == 9 else (x.shape[dim],)):
        raise ValueError(f"X of shape {list(x.shape)} has no vectors of size 3" + ("" if dim == 9 else f" along {dim}"))
    axis = x.shape.index(3) if dim == 9 else dim
    return jnp.cross(x, y, axis=axis)


@op("trace", inputs="Input", outputs="Out", lod=None)
def trace(input, *, offset=0, dim1=-2, dim2=-1):
    """The sum of a diagonal of each matrix."""
    total = jnp.trace(input, offset, dim1, dim2, dtype=input.dtype)
    return total.reshape(total.shape or (1,))
