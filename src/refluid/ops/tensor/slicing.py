"""Ops that cut a box out of a tensor (slice, strided_slice, crop) or reorder it (reverse, flip, roll)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import not_along_rows
from refluid.ops.core.static import described, integers, length

_BOUNDS = "StartsTensor? EndsTensor? StartsTensorList*? EndsTensorList*?"
_STRIDED_BOUNDS = "StartsTensor? EndsTensor? StridesTensor? StartsTensorList*? EndsTensorList*? StridesTensorList*?"


def _without_flags(slots: str) -> str:
    return slots.replace("*", "").replace("?", "")


def _clip(start: int, end: int, size: int) -> tuple[int, int]:
    """Bounds clipped to [0, size]; negative ones count from the end."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    start, end = min(max(start, 0), size), min(max(end, 0), size)
    if start >= end and size:  # all that an empty dim has is nothing, as in Fluid
        raise ValueError(f"nothing of a dim of {size} is between start {start} and end {end}")
    return start, end


def _decreased(dims: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """``dims`` without ``axes``; Fluid's tensors keep at least one dim."""
    for axis in axes:
        if dims[axis] not in (1, -1):
            raise ValueError(f"decrease_axis names axis {axis}, but the slice has {dims[axis]} elements there, not one")
    return tuple(dim for i, dim in enumerate(dims) if i not in axes) or (1,)


def _infer_slice(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, axes = inputs["Input"][0], attrs["axes"]
    starts, ends = attrs.get("starts", ()), attrs.get("ends", ())
    flags = list(attrs.get("infer_flags") or [1] * len(axes))
    if inputs.get("StartsTensor") or inputs.get("EndsTensor"):
        flags = [-1] * len(axes)
    dims = list(x.shape)
    for i, axis in enumerate(axes):
        if flags[i] == -1 or dims[axis] == -1:
            dims[axis] = -1
            continue
        start, end = _clip(starts[i], ends[i], dims[axis])
        dims[axis] = end - start
    return {"Out": [ShapeDtype(_decreased(dims, attrs.get("decrease_axis", ())), x.dtype)]}


@op(
    "slice",
    inputs=f"Input {_BOUNDS}",
    outputs="Out",
    static=_without_flags(_BOUNDS),
    infer=_infer_slice,
    row_wise=not_along_rows("axes", slot="Input"),
)
def slice_(x, starts_tensor, ends_tensor, starts_tensors, ends_tensors, *, axes, starts=(), ends=(), decrease_axis=()):
    """x between starts and ends along ``axes``; the axes in ``decrease_axis`` are dropped."""
    starts = integers(starts, starts_tensor, starts_tensors)
    ends = integers(ends, ends_tensor, ends_tensors)
    first, last = [0] * x.ndim, list(x.shape)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        first[axis], last[axis] = _clip(start, end, x.shape[axis])
    cut = lax.slice(x, first, last)
    return cut.reshape(_decreased(cut.shape, decrease_axis)) if decrease_axis else cut


def _span(start: int, end: int, stride: int, size: int) -> tuple[int, int]:
    """The lowest index and the length of a strided range; an end of -1 is open if the stride is negative.

    Fluid steps up from the lowest index even if the stride is negative, then reverses the result.
    """
    if stride == 0:
        raise ValueError("a stride must not be 0")
    start = start + size if start < 0 else start
    if end < 0 and not (end == -1 and stride < 0):
        end += size
    low, high = (start, end) if stride > 0 else (end + 1, start + 1)
    low, high = max(low, 0), min(high, size)
    count = -(-(high - low) // abs(stride))
    if count <= 0:
        raise ValueError(f"nothing of a dim of {size} is between start {start} and end {end} with stride {stride}")
    return low, count


def _infer_strided_slice(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, axes = inputs["Input"][0], attrs["axes"]
    bounds = [attrs.get(name, ()) for name in ("starts", "ends", "strides")]
    flags = list(attrs.get("infer_flags") or [1] * len(axes))
    dims = list(x.shape)
    if any(inputs.get(slot) for slot in ("StartsTensor", "EndsTensor", "StridesTensor")):
        dims, axes = [-1] * len(dims), ()
    for i, axis in enumerate(axes):
        unknown = flags[i] == -1 or dims[axis] == -1
        start, end, stride = (0, 0, 1) if unknown else (bound[i] for bound in bounds)
        dims[axis] = -1 if unknown else _span(start, end, stride, dims[axis])[1]
    return {"Out": [ShapeDtype(_decreased(dims, attrs.get("decrease_axis", ())), x.dtype)]}


@op(
    "strided_slice",
    inputs=f"Input {_STRIDED_BOUNDS}",
    outputs="Out",
    static=_without_flags(_STRIDED_BOUNDS),
    infer=_infer_strided_slice,
    row_wise=not_along_rows("axes", slot="Input"),
)
def strided_slice(
    x,
    starts_tensor,
    ends_tensor,
    strides_tensor,
    starts_tensors,
    ends_tensors,
    strides_tensors,
    *,
    axes,
    starts=(),
    ends=(),
    strides=(),
    decrease_axis=(),
):
    """Every stride-th element of x between starts and ends along ``axes``, reversed where a stride is negative."""
    starts = integers(starts, starts_tensor, starts_tensors)
    ends = integers(ends, ends_tensor, ends_tensors)
    strides = integers(strides, strides_tensor, strides_tensors)
    first, last, steps, backwards = [0] * x.ndim, list(x.shape), [1] * x.ndim, []
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        low, count = _span(start, end, stride, x.shape[axis])
        first[axis], last[axis], steps[axis] = low, low + (count - 1) * abs(stride) + 1, abs(stride)
        if stride < 0:
            backwards.append(axis)
    cut = jnp.flip(lax.slice(x, first, last, steps), backwards)
    return cut.reshape(_decreased(cut.shape, decrease_axis)) if decrease_axis else cut


def _corners(dims: Sequence[int], shape: Sequence[int], offsets: Sequence[int]) -> tuple[list[int], list[int]]:
    """The start and end of a box in a tensor; a size of -1 extends to the end."""
    offsets = list(offsets) or [0] * len(dims)
    if len(shape) != len(dims) or len(offsets) != len(dims):
        raise ValueError(f"shape {list(shape)} and offsets {offsets} need a number for each dim of {list(dims)}")
    ends = [dim if size == -1 else o + size for dim, size, o in zip(dims, shape, offsets, strict=True)]
    if any(dim != -1 and not 0 <= o <= end <= dim for dim, o, end in zip(dims, offsets, ends, strict=True)):
        raise ValueError(f"a box of shape {list(shape)} at {offsets} does not fit into shape {list(dims)}")
    return offsets, ends


def _infer_crop(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, like = inputs["X"][0], described(inputs, "Y")
    shape = attrs.get("shape", ()) if like is None else like.shape
    if not inputs.get("Offsets"):
        _corners(x.shape, shape, attrs.get("offsets", ()))
    return {"Out": [ShapeDtype(tuple(shape), x.dtype)]}


@op("crop", inputs="X Y? Offsets?", outputs="Out", static="Offsets", differentiable="X", infer=_infer_crop, lod=None)
def crop(x, like, offsets_tensor, *, shape=(), offsets=()):
    """The part of x that starts at ``offsets`` and has the given shape, or that of Y."""
    shape = shape if like is None else like.shape
    return lax.slice(x, *_corners(x.shape, shape, integers(offsets, offsets_tensor)))


def _infer_crop_tensor(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, shape, given = inputs["X"][0], attrs.get("shape", ()), described(inputs, "Shape")
    if given is not None:
        return {"Out": [ShapeDtype((-1,) * (length(given) or len(x.shape)), x.dtype)]}
    offsets = list(attrs.get("offsets", ())) or [0] * len(x.shape)
    known = not (inputs.get("Offsets") or inputs.get("OffsetsTensor"))
    dims = [
        size if size > 0 else dim - offset if size == -1 and dim != -1 and known else -1
        for dim, size, offset in zip(x.shape, shape, offsets, strict=True)
    ]
    return {"Out": [ShapeDtype(tuple(dims), x.dtype)]}


@op(
    "crop_tensor",
    inputs="X Shape? Offsets? ShapeTensor*? OffsetsTensor*?",
    outputs="Out",
    static="Shape Offsets ShapeTensor OffsetsTensor",
    infer=_infer_crop_tensor,
    lod=None,
)
def crop_tensor(x, shape_tensor, offsets_tensor, shape_tensors, offsets_tensors, *, shape=(), offsets=()):
    """The part of x that starts at ``offsets`` and has the given shape; -1 extends to x's end."""
    shape = integers(shape, shape_tensor, shape_tensors)
    return lax.slice(x, *_corners(x.shape, shape, integers(offsets, offsets_tensor, offsets_tensors)))


@op("reverse", inputs="X", outputs="Out", lod=None, row_wise=not_along_rows("axis"))
def reverse(x, *, axis):
    """x reversed along each given axis."""
    return jnp.flip(x, axis)


@op("flip", inputs="X", outputs="Out", row_wise=not_along_rows("dims"))
def flip(x, *, dims):
    """x reversed along each of ``dims``."""
    return jnp.flip(x, dims)


@op("roll", inputs="X", outputs="Out", row_wise=not_along_rows("dims"))
def roll(x, *, shifts, dims=()):
    """x shifted cyclically along ``dims``."""
    if len(shifts) != len(dims):
        raise ValueError(f"shifts {list(shifts)} need one dim each, not {list(dims)}")
    return jnp.roll(x, shifts, dims)
