"""Ops that pad a tensor, and unfold, which extracts sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.static import integers


@op("pad", inputs="X", outputs="Out", row_wise=lambda attrs, arguments: not any(attrs["paddings"][:2]))
def pad(x, *, paddings, pad_value=0.0):
    """x padded with a constant; ``paddings`` lists before and after for each axis in turn (differs: pad-gradient)."""
    if len(paddings) != 2 * x.ndim:
        raise ValueError(f"paddings {list(paddings)} must be two numbers for each of the {x.ndim} dims of X")
    widths = list(zip(paddings[0::2], paddings[1::2], strict=True))
    return jnp.pad(x, widths, constant_values=jnp.asarray(pad_value, x.dtype))


@op("pad_constant_like", inputs="X Y", outputs="Out", differentiable="Y")
def pad_constant_like(x, y, *, pad_value=0.0):
    """y padded to x's shape with a constant, at the end of each axis."""
    if x.ndim != y.ndim or any(small > large for large, small in zip(x.shape, y.shape, strict=True)):
        raise ValueError(f"Y of shape {list(y.shape)} does not fit into the shape of X, {list(x.shape)}")
    widths = [(0, large - small) for large, small in zip(x.shape, y.shape, strict=True)]
    return jnp.pad(y, widths, constant_values=jnp.asarray(pad_value, y.dtype))


# The axes of height and width.
_PLANE = {"NCHW": (2, 3), "NHWC": (1, 2), "AnyLayout": (2, 3)}


def _check_border(shape: Sequence[int], paddings: Sequence[int], mode: str, data_format: str) -> None:
    if len(shape) != 4 or len(paddings) != 4:
        raise ValueError(f"X must have 4 dims and paddings 4 numbers, not {list(shape)} and {list(paddings)}")
    if mode not in ("constant", "reflect", "edge"):
        raise ValueError(f"mode {mode!r} is not one of constant, reflect, edge")
    height, width = (shape[axis] for axis in _PLANE[data_format])
    for size, before, after in ((height, *paddings[:2]), (width, *paddings[2:])):
        if size != -1 and min(before, after) < 0 and size + before + after < 1:
            raise ValueError(f"paddings {list(paddings)} leave nothing of an image of {height} x {width}")
        if mode == "reflect" and size != -1 and max(before, after) >= size:
            raise ValueError(f"a reflection cannot be wider than the image without its edge, {size - 1}")


def _infer_pad2d(inputs: Described, attrs: dict[str, Any]) -> Described:
    x, paddings = inputs["X"][0], attrs.get("paddings", ())
    if not inputs.get("Paddings"):
        _check_border(x.shape, paddings, attrs.get("mode", "constant"), attrs.get("data_format", "NCHW"))
    dims = list(x.shape)
    for i, axis in enumerate(_PLANE[attrs.get("data_format", "NCHW")]):
        unknown = dims[axis] == -1 or inputs.get("Paddings")
        dims[axis] = -1 if unknown else dims[axis] + paddings[2 * i] + paddings[2 * i + 1]
    return {"Out": [ShapeDtype(tuple(dims), x.dtype)]}


@op("pad2d", inputs="X Paddings?", outputs="Out", static="Paddings", infer=_infer_pad2d, row_wise=True)
def pad2d(x, paddings_tensor, *, paddings=(), mode="constant", pad_value=0.0, data_format="NCHW"):
    """Images padded at top, bottom, left and right with a constant, their reflection or their edge; cropped below 0."""
    paddings = integers(paddings, paddings_tensor)
    _check_border(x.shape, paddings, mode, data_format)
    top, bottom, left, right = paddings
    widths = [(0, 0)] * 4
    height, width = _PLANE[data_format]
    widths[height], widths[width] = (top, bottom), (left, right)
    options = {"constant_values": jnp.asarray(pad_value, x.dtype)} if mode == "constant" else {}
    padded = jnp.pad(x, [(max(before, 0), max(after, 0)) for before, after in widths], mode=mode, **options)
    if min(paddings) >= 0:
        return padded
    return padded[tuple(slice(max(-before, 0), min(after, 0) or None) for before, after in widths)]


@op("unfold", inputs="X", outputs="Y", lod=None)
def unfold(x, *, kernel_sizes, strides=(1, 1), paddings=(0, 0, 0, 0), dilations=(1, 1)):
    """The windows a convolution would read, as columns: [batch, channels * window, positions]."""
    top, left, bottom, right = paddings
    padded = jnp.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
    rows, columns = (
        (size - dilation * (kernel - 1) - 1) // stride + 1
        for size, kernel, stride, dilation in zip(padded.shape[2:], kernel_sizes, strides, dilations, strict=True)
    )
    if rows < 1 or columns < 1:
        raise ValueError(f"a window of {list(kernel_sizes)} does not fit into images of {list(x.shape[2:])}")
    windows = [
        padded[:, :, i * dilations[0] :: strides[0], j * dilations[1] :: strides[1]][:, :, :rows, :columns]
        for i in range(kernel_sizes[0])
        for j in range(kernel_sizes[1])
    ]
    batch, channels = x.shape[:2]
    return jnp.stack(windows, 2).reshape(batch, channels * len(windows), rows * columns)
