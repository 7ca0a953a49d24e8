"""Ops that create tensors from attributes or from another tensor's shape, and ops that copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.dtypes import numpy_dtype
from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.static import described, integer, integers, length
from refluid.ops.core.values import Ragged


def _number(value: float, text: str, dtype: np.dtype) -> Any:
    """The constant of an op, from its text if given, because a float cannot represent every int64."""
    if text and dtype.kind in "iu":
        try:
            return int(text)
        except ValueError:
            return int(float(text))
    return dtype.type(float(text) if text else value)


def _filled(shape: Sequence[int], value: float, text: str, dtype: int) -> Any:
    kind = numpy_dtype(dtype)
    return jnp.full(tuple(shape), _number(value, text, kind), kind)


def _check_known(shape: Sequence[int]) -> None:
    if any(dim < 0 for dim in shape):
        raise ValueError(f"shape {list(shape)} of the new tensor has a dim that is not known")


def _infer_fill_constant(inputs: Described, attrs: dict[str, Any]) -> Described:
    shape, given = attrs.get("shape", ()), described(inputs, "ShapeTensor")
    if given is not None and not inputs.get("ShapeTensorList"):
        shape = shape or (-1,) * (length(given) or 0)
    elif not inputs.get("ShapeTensorList"):
        _check_known(shape)
    return {"Out": [ShapeDtype(tuple(shape), numpy_dtype(attrs.get("dtype", 5)))]}


@op(
    "fill_constant",
    inputs="ValueTensor? ShapeTensor? ShapeTensorList*?",
    outputs="Out",
    static="ShapeTensor ShapeTensorList",
    grad=None,
    infer=_infer_fill_constant,
    lod=None,
    slices="fill",
)
def fill_constant(value_tensor, shape_tensor, shape_tensors, *, shape=(), dtype=5, value=0.0, str_value=""):
    """A tensor filled with one value."""
    shape = integers(shape, shape_tensor, shape_tensors)
    _check_known(shape)
    if value_tensor is not None:
        return jnp.broadcast_to(value_tensor.reshape(()), shape).astype(numpy_dtype(dtype))
    return _filled(shape, value, str_value, dtype)


def _batch_sized(x: Any, shape: Sequence[int], input_dim_idx: int, output_dim_idx: int) -> list[int]:
    """``shape`` with one dim taken from x; the first dim of sequences is their number."""
    dims = list(shape)
    counts_sequences = input_dim_idx == 0 and isinstance(x, Ragged) and x.levels > 0
    dims[output_dim_idx] = x.sequences if counts_sequences else x.shape[input_dim_idx]
    return dims


def _filled_like_batch(x: Any, values: Any, input_dim_idx: int, output_dim_idx: int) -> Any:
    """``values``, padded like x if there is one per inner sequence, or one per row of an x without sequences."""
    if not isinstance(x, Ragged) or input_dim_idx or output_dim_idx:
        return values
    if not x.levels:
        return x.with_data(values)
    return Ragged(values, x.offsets[:-1], 0, hidden=len(x.offsets) - 1) if len(x.offsets) > 1 else values


def _infer_fill_batch_size_like(inputs: Described, attrs: dict[str, Any]) -> Described:
    places = attrs.get("input_dim_idx", 0), attrs.get("output_dim_idx", 0)
    dims = _batch_sized(inputs["Input"][0], attrs["shape"], *places)
    return {"Out": [ShapeDtype(tuple(dims), numpy_dtype(attrs.get("dtype", 5)))]}


@op(
    "fill_constant_batch_size_like",
    inputs="Input",
    outputs="Out",
    constant=True,
    grad=None,
    infer=_infer_fill_batch_size_like,
    lod="aware",
)
def fill_constant_batch_size_like(x, *, shape, dtype=5, value=0.0, str_value="", input_dim_idx=0, output_dim_idx=0):
    """A tensor filled with one value, with one dim taken from x."""
    dims = _batch_sized(x, shape, input_dim_idx, output_dim_idx)
    _check_known(dims)
    return _filled_like_batch(x, _filled(dims, value, str_value, dtype), input_dim_idx, output_dim_idx)


@op("fill_zeros_like", inputs="X", outputs="Out", constant=True, grad=None, row_wise=True, slices="rows")
def fill_zeros_like(x):
    """Zeros with x's shape and dtype."""
    if isinstance(x, list):  # an array of tensors
        return [jnp.zeros(each.shape, each.dtype) for each in x]
    return jnp.zeros(x.shape, x.dtype)


@op("fill_zeros_like2", inputs="X", outputs="Out", constant=True, grad=None, row_wise=True)
def fill_zeros_like2(x, *, dtype=5):
    """Zeros with x's shape and a given dtype."""
    return jnp.zeros(x.shape, numpy_dtype(dtype))


@op("fill_any_like", inputs="X", outputs="Out", constant=True, grad=None, row_wise=True)
def fill_any_like(x, *, value=0.0, dtype=-1):
    """``value`` in x's shape."""
    return _filled(x.shape, value, "", dtype) if dtype >= 0 else jnp.full(x.shape, value, x.dtype)


@op("fill", inputs="", outputs="Out", grad=None, lod=None)
def fill(*, value, shape, dtype=5):
    """A tensor with the given elements."""
    return jnp.asarray(np.asarray(value, numpy_dtype(dtype)).reshape(shape))


@op("assign_value", inputs="", outputs="Out", grad=None, lod=None)
def assign_value(*, shape, dtype=5, bool_values=(), fp32_values=(), int32_values=(), int64_values=()):
    """A tensor with the given elements."""
    given = {"bool": bool_values, "float32": fp32_values, "int32": int32_values, "int64": int64_values}
    kind = numpy_dtype(dtype)
    if kind.name not in given:
        raise TypeError(f"there are no values of dtype {kind.name}, only of {', '.join(given)}")
    return jnp.asarray(np.asarray(given[kind.name], kind).reshape(shape))


def _infer_vector(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {"Out": [ShapeDtype((-1,), inputs["Start"][0].dtype)]}


@op("range", inputs="Start End Step", outputs="Out", static="Start End Step", grad=None, infer=_infer_vector, lod=None)
def range_(start, end, step):
    """start, start + step, ... before end; step is added repeatedly, to round as Fluid does."""
    first, last, by = (np.ravel(value)[0] for value in (start, end, step))
    if by == 0 or (last - first) / by < 0:
        raise ValueError(f"a range from {first} with step {by} does not reach {last}")
    count = int(np.ceil(np.abs((last - first) / by)))
    steps = np.full((count,), by, start.dtype)
    steps[:1] = first
    return jnp.asarray(np.cumsum(steps, dtype=start.dtype))


@op("linspace", inputs="Start Stop Num", outputs="Out", static="Num", grad=None, infer=_infer_vector, lod=None)
def linspace(start, stop, num):
    """``num`` evenly spaced numbers from start to stop."""
    count = integer(num)
    if count < 1:
        raise ValueError(f"Num is {count}; it must be at least 1")
    first, last = start.reshape(-1)[:1], stop.reshape(-1)[:1]
    return first + (last - first) / max(count - 1, 1) * jnp.arange(count, dtype=start.dtype)


@op("diag", inputs="Diagonal", outputs="Out", grad=None, lod=None)
def diag(diagonal):
    """The square matrix with this diagonal and zeros elsewhere."""
    if diagonal.ndim != 1:
        raise ValueError(f"Diagonal must be a vector, not of shape {list(diagonal.shape)}")
    return jnp.diag(diagonal)


@op("eye", inputs="", outputs="Out", grad=None, lod=None)
def eye(*, num_rows, num_columns=-1, dtype=5):
    """Ones on the diagonal, zeros elsewhere; square if ``num_columns`` is -1."""
    return jnp.eye(num_rows, num_rows if num_columns == -1 else num_columns, dtype=numpy_dtype(dtype))


@op("tril_triu", inputs="X", outputs="Out")
def tril_triu(x, *, diagonal=0, lower):
    """x with zeros above, or below, a diagonal."""
    return jnp.tril(x, diagonal) if lower else jnp.triu(x, diagonal)


@op("shape", inputs="Input", outputs="Out", constant=True, grad=None, lod=None)
def shape(x):
    """x's shape as an int32 vector."""
    return jnp.asarray(np.asarray(x.shape, np.int32))


@op("size", inputs="Input", outputs="Out", constant=True, grad=None, lod=None)
def size(x):
    """The number of elements of x."""
    return jnp.asarray(np.asarray([np.prod(x.shape, dtype=np.int64)]))


@op("is_empty", inputs="X", outputs="Out", grad=None, lod="aware")
def is_empty(x):
    """Whether x has no elements."""
    if isinstance(x, Ragged) and 0 not in x.shape:
        return (x.rows == 0).reshape(1)
    return jnp.asarray(np.asarray([0 in x.shape]))


def _between_integers(attrs: dict[str, Any]) -> bool:
    return all(name in attrs and numpy_dtype(attrs[name]).kind in "iu" for name in ("in_dtype", "out_dtype"))


@op("cast", inputs="X", outputs="Out", row_wise=True, slices="rows", moves_values=_between_integers)
def cast(x, *, out_dtype):
    """x converted to another dtype; floats beyond the range of integers as a processor does it, which NumPy has too."""
    dtype = numpy_dtype(out_dtype)
    if dtype.kind in "iu" and jnp.issubdtype(x.dtype, jnp.floating):
        return _wrapped(x, dtype)
    return x.astype(dtype)


def _wrapped(x, dtype: np.dtype):
    """Floats as integers: the lowest bits of 32 or 64 of them, and the least integer where these do not suffice.

    XLA takes the nearest integer that the dtype has, and 0 for NaN.
    """
    wide = np.iinfo(np.int64 if dtype.itemsize == 8 else np.int32)
    fits = (x >= wide.min) & (x < -float(wide.min))
    return jnp.where(fits, jnp.trunc(x).astype(wide.dtype), wide.min).astype(dtype)


@op("assign", inputs="X", outputs="Out", row_wise=True, slices="rows", moves_values=True)
def assign(x):
    """x."""
    return x


@op("increment", inputs="X", outputs="Out", grad=None)
def increment(x, *, step=1.0):
    """x + step, in x's dtype."""
    if x.size != 1:
        raise ValueError(f"X counts one thing; it has shape {list(x.shape)}")
    return x + jnp.asarray(step, x.dtype)


@op("diag_embed", inputs="Input", outputs="Out", grad=None, lod=None)
def diag_embed(input, *, offset=0, dim1=-2, dim2=-1):
    """Matrices, in dims ``dim1`` and ``dim2``, whose diagonal ``offset`` is the last dim of the input, else zeros."""
    rank = input.ndim + 1
    first, second = dim1 % rank, dim2 % rank
    if first == second:
        raise ValueError(f"dim1 {dim1} and dim2 {dim2} are the same dim")
    places = jnp.arange(input.shape[-1])
    size = input.shape[-1] + abs(offset)
    matrices = jnp.zeros((*input.shape[:-1], size, size), input.dtype)
    matrices = matrices.at[..., places + max(-offset, 0), places + max(offset, 0)].set(input)
    return jnp.moveaxis(matrices, (-2, -1), (first, second))
