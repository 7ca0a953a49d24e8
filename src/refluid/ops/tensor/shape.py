"""Ops that reshape or transpose. The ``...2`` forms also output XShape, which holds only x's shape: all that Fluid's
gradient ops need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import Slot, add, lookup, op
from refluid.ops.core.row_wise import Arguments, as_many_rows
from refluid.ops.core.static import described, integers, length


def _register_with_shape(type: str) -> None:
    """Registers the ``...2`` form of an op, which is that op with x's shape as a second output.

    XShape is an empty array of shape [0, *x.shape].
    """
    plain = lookup(type)

    def rule(x, *tensors, **attrs):
        return plain.rule(x, *tensors, **attrs), jnp.zeros((0, *x.shape), x.dtype)

    def infer(inputs: Described, attrs: dict[str, Any]) -> Described:
        x = inputs["X"][0]
        assert plain.infer is not None
        return {**plain.infer(inputs, attrs), "XShape": [ShapeDtype((0, *x.shape), x.dtype)]}

    rule.__doc__ = f"As {type}, with x's shape."
    outputs = (*plain.outputs, Slot("XShape"))
    add(replace(plain, type=f"{type}2", rule=rule, outputs=outputs, infer=plain.infer and infer))


def _target(x_shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """``wanted`` with 0 replaced by x's dim at that position and one -1 by the remaining size."""
    if sum(dim == -1 for dim in wanted) > 1:
        raise ValueError(f"only one dim of shape {list(wanted)} may be -1")
    for i, dim in enumerate(wanted):
        if dim < -1 or (dim == 0 and i >= len(x_shape)):
            raise ValueError(f"dim {i} of shape {list(wanted)} cannot be {dim} when X has shape {list(x_shape)}")
    dims = [x_shape[i] if dim == 0 else dim for i, dim in enumerate(wanted)]
    if -1 in x_shape:
        return tuple(dims)
    size = math.prod(x_shape)
    known = math.prod(dim for dim in dims if dim != -1)
    if -1 in dims:
        if known == 0 or size % known:
            raise ValueError(f"{size} elements of shape {list(x_shape)} do not fill shape {list(wanted)}")
        dims[dims.index(-1)] = size // known
    elif known != size:
        raise ValueError(f"{size} elements of shape {list(x_shape)} do not fill shape {list(wanted)}")
    return tuple(dims)


def _infer_reshape(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, given, wanted = inputs["X"][0], described(inputs, "Shape"), attrs.get("shape", ())
    if inputs.get("ShapeTensor"):
        # Dims that come from tensors are -1 in the attribute; there may be several.
        dims = tuple(x.shape[i] if dim == 0 else dim for i, dim in enumerate(wanted))
    elif given is not None and not wanted:
        dims = (-1,) * (length(given) or 0)
    else:
        dims = _target(x.shape, wanted)
    return {"Out": [ShapeDtype(dims, x.dtype)]}


@op(
    "reshape",
    inputs="X Shape? ShapeTensor*?",
    outputs="Out",
    static="Shape ShapeTensor",
    infer=_infer_reshape,
    row_wise=as_many_rows(lambda x, attrs: _target(x, attrs.get("shape", ())), "Shape", "ShapeTensor"),
    moves_values=True,
)
def reshape(x, shape_tensor, shape_tensors, *, shape=()):
    """x reshaped; 0 keeps a dim, -1 is inferred."""
    return x.reshape(_target(x.shape, integers(shape, shape_tensor, shape_tensors)))


def _rows_stay_first(attrs: dict[str, Any], arguments: Arguments) -> bool:
    return attrs["axis"][0] % arguments["X"][0].ndim == 0


@op("transpose", inputs="X", outputs="Out", lod=None, row_wise=_rows_stay_first, moves_values=True)
def transpose(x, *, axis):
    """x with its dims in the order ``axis``."""
    if sorted(a % x.ndim for a in axis) != list(range(x.ndim)):
        raise ValueError(f"axis {list(axis)} is not an order of the {x.ndim} dims of X")
    return jnp.transpose(x, axis)


def _squeezed(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """``shape`` without the ``axes`` of size 1, or, if empty, all dims of size 1; axes of other sizes stay.

    An unknown dim, -1, counts as 1 if ``axes`` names it.
    """
    rank = len(shape)
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is not an axis of shape {list(shape)}")
    if not axes:
        return tuple(dim for dim in shape if dim != 1)
    chosen = {axis % rank for axis in axes}
    return tuple(dim for i, dim in enumerate(shape) if i not in chosen or dim not in (1, -1))


def _infer_squeeze(inputs: Described, attrs: dict[str, Any]) -> Described:
    x = inputs["X"][0]
    return {"Out": [ShapeDtype(_squeezed(x.shape, attrs.get("axes", ())), x.dtype)]}


_squeeze_keeps_rows = as_many_rows(lambda x, attrs: _squeezed(x, attrs.get("axes", ())))


@op("squeeze", inputs="X", outputs="Out", infer=_infer_squeeze, row_wise=_squeeze_keeps_rows, moves_values=True)
def squeeze(x, *, axes=()):
    """x without the given dims of size 1, or without all of them."""
    return x.reshape(_squeezed(x.shape, axes))


def _unsqueezed(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """``shape`` with a 1 inserted at each axis in turn; each axis refers to the shape so far."""
    dims = list(shape)
    for axis in axes:
        if not -len(dims) - 1 <= axis <= len(dims):
            raise ValueError(f"axis {axis} is no place for a new dim in shape {dims}")
        dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, 1)
    return tuple(dims)


def _infer_unsqueeze(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, tensor, tensors = inputs["X"][0], described(inputs, "AxesTensor"), inputs.get("AxesTensorList")
    if tensors:
        dims = (-1,) * (len(x.shape) + len(tensors))
    elif tensor is not None:
        dims = (-1,) * (len(x.shape) + (length(tensor) or 0))
    else:
        dims = _unsqueezed(x.shape, attrs.get("axes", ()))
    return {"Out": [ShapeDtype(dims, x.dtype)]}


@op(
    "unsqueeze",
    inputs="X AxesTensor? AxesTensorList*?",
    outputs="Out",
    static="AxesTensor AxesTensorList",
    infer=_infer_unsqueeze,
    row_wise=as_many_rows(lambda x, attrs: _unsqueezed(x, attrs.get("axes", ())), "AxesTensor", "AxesTensorList"),
    moves_values=True,
)
def unsqueeze(x, axes_tensor, axes_tensors, *, axes=()):
    """x with new dims of size 1."""
    return x.reshape(_unsqueezed(x.shape, integers(axes, axes_tensor, axes_tensors)))


_flatten_keeps_rows = as_many_rows(lambda x, attrs: (math.prod(x[: attrs.get("axis", 1)]),))


@op("flatten", inputs="X", outputs="Out", row_wise=_flatten_keeps_rows, moves_values=True)
def flatten(x, *, axis=1):
    """x as a matrix: the dims before ``axis`` are the rows, the others the columns."""
    if not 0 <= axis <= x.ndim:
        raise ValueError(f"axis {axis} does not cut the {x.ndim} dims of X in two")
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


for _type in ("reshape", "transpose", "squeeze", "unsqueeze", "flatten"):
    _register_with_shape(_type)
