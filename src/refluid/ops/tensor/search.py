"""Ops that sort, rank or deduplicate elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.core.dtypes import numpy_dtype
from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import has_columns, not_along_rows
from refluid.ops.core.static import integer


def _register_place(type: str, find: Callable[..., Any], which: str) -> None:
    @op(type, inputs="X", outputs="Out", grad=None, lod=None, row_wise=not_along_rows("axis"))
    def rule(x, *, axis, keepdims=False, dtype=-1):
        found = find(x, axis=int(axis), keepdims=keepdims)
        return found.astype(jnp.int64 if dtype < 0 else numpy_dtype(dtype))

    rule.__doc__ = f"Where x is {which} along ``axis``; the first place of several."


_register_place("arg_max", jnp.argmax, "largest")
_register_place("arg_min", jnp.argmin, "smallest")


@op("argsort", inputs="X", outputs="Out Indices", row_wise=not_along_rows("axis"))
def argsort(x, *, axis=-1, descending=False):
    """x sorted along ``axis``, and the source index of each element; the sort is stable."""
    order = jnp.argsort(lax.stop_gradient(x), axis=axis, descending=descending, stable=True)
    return jnp.take_along_axis(x, order, axis=axis), order.astype(jnp.int64)


def _infer_top_k(inputs: Described, attrs: dict[str, Any]) -> Described:
    x = inputs["X"][0]
    k = attrs.get("k", -1 if inputs.get("K") else 1)
    dims = (*x.shape[:-1], _checked_k(k, x.shape[-1]))
    return {"Out": [ShapeDtype(dims, x.dtype)], "Indices": [ShapeDtype(dims, np.dtype(np.int64))]}


def _checked_k(k: int, size: int) -> int:
    if k != -1 and (k < 1 or (size != -1 and k > size)):
        raise ValueError(f"k is {k}, but the last dim of X has {size} elements")
    return k


@op("top_k", inputs="X K?", outputs="Out Indices", static="K", infer=_infer_top_k, row_wise=has_columns())
def top_k(x, k_tensor, *, k=1):
    """The k largest elements of each row, largest first, and their indices."""
    k = _checked_k(k if k_tensor is None else integer(k_tensor), x.shape[-1])
    _, places = lax.top_k(lax.stop_gradient(x), k)
    return jnp.take_along_axis(x, places, axis=-1), places.astype(jnp.int64)


def _different(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The unique elements in order of first appearance, the index of each x among them, and their counts."""
    _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return x[first[order]], rank[inverse], counts[order]


def _infer_unique(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, dtype = inputs["X"][0], numpy_dtype(attrs["dtype"])
    return {"Out": [ShapeDtype((-1,), x.dtype)], "Index": [ShapeDtype(x.shape, dtype)]}


def _infer_unique_with_counts(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {**_infer_unique(inputs, attrs), "Count": [ShapeDtype((-1,), numpy_dtype(attrs["dtype"]))]}


@op("unique", inputs="X", outputs="Out Index", static="X", grad=None, infer=_infer_unique, lod=None)
def unique(x, *, dtype):
    """The unique elements of x in order of first appearance, and the index of each element of x among them."""
    elements, index, _ = _different(x)
    return elements, index.astype(numpy_dtype(dtype))


@op(
    "unique_with_counts",
    inputs="X",
    outputs="Out Index Count",
    static="X",
    grad=None,
    infer=_infer_unique_with_counts,
    lod=None,
)
def unique_with_counts(x, *, dtype):
    """unique, with the count of each unique element."""
    elements, index, counts = _different(x)
    return elements, index.astype(numpy_dtype(dtype)), counts.astype(numpy_dtype(dtype))
