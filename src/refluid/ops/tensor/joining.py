"""Ops that join, split or repeat tensors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import Arguments, as_many_rows, not_along_rows
from refluid.ops.core.static import described, integer, integers, length
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.packing import joined_rows


def _unknown(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape of the same rank with all dims unknown."""
    return (-1,) * len(shape)


def _infer_concat(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, others = inputs["X"][0], inputs["X"][1:]
    if inputs.get("AxisTensor"):
        return {"Out": [ShapeDtype(_unknown(x.shape), x.dtype)]}
    rank = len(x.shape)
    axis = _checked_axis(attrs.get("axis", 0), rank)
    dims = list(x.shape)
    for other in others:
        if len(other.shape) != rank:
            raise ValueError(f"cannot join shapes {list(x.shape)} and {list(other.shape)}: the ranks differ")
        for i, (mine, theirs) in enumerate(zip(dims, other.shape, strict=True)):
            if i == axis:
                dims[i] = -1 if -1 in (mine, theirs) else mine + theirs
            elif mine == -1:
                dims[i] = theirs
            elif theirs not in (-1, mine):
                raise ValueError(f"cannot join shapes {list(x.shape)} and {list(other.shape)} along axis {axis}")
    return {"Out": [ShapeDtype(tuple(dims), x.dtype, lod_level=x.lod_level)]}


def _axis_is_inner(attrs: dict[str, Any], arguments: Arguments) -> bool:
    return not arguments.get("AxisTensor") and attrs.get("axis", 0) % arguments["X"][0].ndim > 0


@op(
    "concat",
    inputs="X* AxisTensor?",
    outputs="Out",
    static="AxisTensor",
    infer=_infer_concat,
    lod="aware",
    moves_values=True,
)
def concat(xs, axis_tensor, *, axis=0):
    """The xs concatenated along ``axis``; along rows, the sequences of each x follow those of the previous one."""
    axis = _checked_axis(axis if axis_tensor is None else integer(axis_tensor), xs[0].ndim)
    _require_one_dtype(xs)
    model = next((x for x in xs if isinstance(x, Ragged)), None)
    if model is not None and axis == 0:
        return joined_rows(xs)
    joined = jnp.concatenate([plain(x) for x in xs], axis)
    if model is None:
        return joined
    return model.with_data(joined) if isinstance(xs[0], Ragged) else model.as_rows(joined)


def _require_one_dtype(xs: list[Any]) -> None:
    if len({x.dtype for x in xs}) > 1:
        raise ValueError("the inputs must have the same dtype; cast them")


def _checked_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is not an axis of a tensor with {rank} dims")
    return axis % rank


def _sections(size: int, num: int, sections: list[int]) -> list[int]:
    """The lengths of the parts of a dim; one section may be -1, which takes the remainder."""
    if num > 0:
        if size % num:
            raise ValueError(f"a dim of {size} does not split into {num} equal pieces")
        return [size // num] * num
    missing = sections.count(-1)
    left = size - sum(length for length in sections if length != -1)
    if missing > 1 or left < 0 or (missing == 0 and left):
        raise ValueError(f"sections {sections} do not make up a dim of {size}")
    return [left if length == -1 else length for length in sections]


def _infer_split(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, num, sections = inputs["X"][0], attrs.get("num", 0), list(attrs.get("sections", ()))
    count = num or len(sections)
    if inputs.get("AxisTensor"):
        return {"Out": [ShapeDtype(_unknown(x.shape), x.dtype)] * count}
    axis = _checked_axis(attrs.get("axis", 0), len(x.shape))
    if x.shape[axis] == -1:
        lengths = [-1] * num if num > 0 else sections
    elif inputs.get("SectionsTensorList"):
        lengths = sections
    else:
        lengths = _sections(x.shape[axis], num, sections)
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    return {"Out": [ShapeDtype((*before, length, *after), x.dtype) for length in lengths]}


@op(
    "split",
    inputs="X AxisTensor? SectionsTensorList*?",
    outputs="Out*",
    static="AxisTensor SectionsTensorList",
    infer=_infer_split,
    row_wise=_axis_is_inner,
)
def split(x, axis_tensor, section_tensors, *, axis=0, num=0, sections=()):
    """x split along ``axis`` into ``num`` equal parts, or into parts of lengths ``sections``."""
    axis = _checked_axis(axis if axis_tensor is None else integer(axis_tensor), x.ndim)
    lengths = _sections(x.shape[axis], num, integers(sections, tensors=section_tensors))
    borders = [sum(lengths[:i]) for i in range(1, len(lengths))]
    return jnp.split(x, borders, axis)


def _new_axis_is_inner(attrs: dict[str, Any], arguments: Arguments) -> bool:
    return attrs.get("axis", 0) % (arguments["X"][0].ndim + 1) > 0


@op("stack", inputs="X*", outputs="Y", row_wise=_new_axis_is_inner, moves_values=True)
def stack(xs, *, axis=0):
    """The xs stacked along a new axis."""
    _require_one_dtype(xs)
    return jnp.stack(xs, axis)


def _pieces(x: Any, axis: int) -> list[Any]:
    axis = _checked_axis(axis, x.ndim)
    return [jnp.squeeze(piece, axis) for piece in jnp.split(x, x.shape[axis], axis)]


@op("unstack", inputs="X", outputs="Y*", lod=None, row_wise=not_along_rows("axis", 0))
def unstack(x, *, axis=0, num=0):
    """x's slices along ``axis``, each without that axis."""
    pieces = _pieces(x, axis)
    if num and num != len(pieces):
        raise ValueError(f"num is {num}, but X has {len(pieces)} slices along axis {axis}")
    return pieces


@op("unbind", inputs="X", outputs="Out*", lod=None, row_wise=not_along_rows("axis", 0))
def unbind(x, *, axis=0):
    """x's slices along ``axis``, each without that axis."""
    return _pieces(x, axis)


@op("meshgrid", inputs="X*", outputs="Out*", lod=None)
def meshgrid(xs):
    """The grid spanned by k vectors: one k-dimensional tensor for each, constant along all axes but its own."""
    return jnp.meshgrid(*xs, indexing="ij")


def _infer_expand(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, times = inputs["X"][0], list(attrs.get("expand_times", ()))
    given = described(inputs, "ExpandTimes")
    if given is not None and not times:
        times = [-1] * (length(given) or len(x.shape))
    if inputs.get("expand_times_tensor") and not times:
        times = [-1] * len(inputs["expand_times_tensor"])
    _check_times(x.shape, times)
    dims = tuple(-1 if -1 in (dim, n) else dim * n for dim, n in zip(x.shape, times, strict=True))
    return {"Out": [ShapeDtype(dims, x.dtype)]}


def _check_times(shape: tuple[int, ...], times: list[int]) -> None:
    if len(shape) != len(times):
        raise ValueError(f"expand_times {times} must have one number for each of the dims {list(shape)} of X")
    if any(n < 1 and n != -1 for n in times):
        raise ValueError(f"expand_times {times} must be at least 1")


@op(
    "expand",
    inputs="X ExpandTimes? expand_times_tensor*?",
    outputs="Out",
    static="ExpandTimes expand_times_tensor",
    infer=_infer_expand,
    row_wise=as_many_rows(lambda x, attrs: (x[0] * attrs["expand_times"][0],), "ExpandTimes", "expand_times_tensor"),
)
def expand(x, times_tensor, times_tensors, *, expand_times=()):
    """x repeated along each of its axes."""
    times = integers(expand_times, times_tensor, times_tensors)
    _check_times(x.shape, times)
    return jnp.tile(x, times)


@op("expand_as", inputs="X target_tensor", outputs="Out", differentiable="X", lod=None)
def expand_as(x, target):
    """x tiled to the target's shape."""
    if x.ndim != target.ndim or any(large % small for large, small in zip(target.shape, x.shape, strict=True)):
        raise ValueError(f"repeating X of shape {list(x.shape)} cannot give shape {list(target.shape)}")
    return jnp.tile(x, [large // small for large, small in zip(target.shape, x.shape, strict=True)])


def _columns(xs: list[Any], start_index: int, length: int) -> list[Any]:
    """The columns of each x from ``start_index`` on; all of them if ``length`` is negative."""
    if any(x.ndim != 2 or x.shape != xs[0].shape for x in xs):
        raise ValueError("the inputs must be matrices of the same shape")
    width = xs[0].shape[1]
    start = start_index + width if start_index < 0 else start_index
    end = width if length < 0 else start + length
    if not 0 <= start < end <= width:
        raise ValueError(f"start_index {start_index} and length {length} name no columns of {width}")
    return [x[:, start:end] for x in xs]


@op("partial_concat", inputs="X*", outputs="Out", row_wise=True)
def partial_concat(xs, *, start_index=0, length=-1):
    """The same columns of each x, side by side."""
    return jnp.concatenate(_columns(xs, start_index, length), 1)


@op("partial_sum", inputs="X*", outputs="Out", row_wise=True)
def partial_sum(xs, *, start_index=0, length=-1):
    """The sum of the same columns of each x."""
    return sum(_columns(xs, start_index, length))


_ALIGNMENT = 4096  # bytes; where each tensor begins in the memory that real Fluid allocates on a CPU


@op("coalesce_tensor", inputs="Input*", outputs="Output* FusedOutput", grad=None, lod=None)
def coalesce_tensor(xs, *, dtype, copy_data=False, set_constant=False, constant=0.0):
    """The inputs, or as large constants, and all of them in one vector, each at a multiple of 4096 bytes.

    In real Fluid the outputs are views of the vector; here memory belongs to XLA, and they are values.
    """
    if not copy_data and not set_constant:
        raise ValueError("without copy_data or set_constant the outputs have no values")
    fill = jnp.asarray(constant if set_constant else 0, xs[0].dtype)
    outputs = [jnp.full_like(x, fill) for x in xs] if set_constant else xs
    step = _ALIGNMENT // xs[0].dtype.itemsize
    padded = [jnp.pad(out.reshape(-1), (0, -out.size % step), constant_values=fill) for out in outputs]
    return outputs, jnp.concatenate(padded)
