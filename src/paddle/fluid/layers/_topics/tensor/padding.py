"""Padding, and unfold."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layers._topics.core.append import append_single_op, input_or_attr, require_floating
from paddle.fluid.layers._topics.core.integer_arguments import per_dim
from refluid.ir import Variable

__all__ = ["pad", "pad2d", "pad_constant_like", "unfold"]


def pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Pads x with a constant; ``paddings`` holds the sizes before and after, axis by axis."""
    check_type(x, "x", Variable, "pad")
    attrs = {"paddings": list(paddings), "pad_value": float(pad_value)}
    return append_single_op("pad", {"X": x}, {"Out": x.dtype}, attrs, name)["Out"]


def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Pads y at the end of each axis to the shape of x."""
    check_type(x, "x", Variable, "pad_constant_like")
    check_type(y, "y", Variable, "pad_constant_like")
    attrs = {"pad_value": float(pad_value)}
    return append_single_op("pad_constant_like", {"X": x, "Y": y}, {"Out": x.dtype}, attrs, name)["Out"]


def pad2d(
    input: Variable,
    paddings: Sequence[int] | Variable = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Pads images.

    Args:
      paddings: top, bottom, left and right; or a variable that holds these four.
      mode: "constant", "reflect" (mirror at the edge) or "edge" (repeat the edge).
      data_format: "NCHW" or "NHWC".
    """
    check_type(input, "input", Variable, "pad2d")
    if mode not in ("constant", "reflect", "edge"):
        raise ValueError(f"pad2d: mode must be constant, reflect or edge, not {mode!r}")
    inputs, known = input_or_attr(paddings, "Paddings", "paddings")
    attrs = {"mode": mode, "pad_value": float(pad_value), "data_format": data_format, "paddings": [], **known}
    return append_single_op("pad2d", {"X": input, **inputs}, {"Out": input.dtype}, attrs, name)["Out"]


def unfold(
    x: Variable,
    kernel_sizes: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    paddings: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    name: str | None = None,
) -> Variable:
    """Extracts the windows that a convolution sees in images [N, C, H, W] as columns [N, C * window, positions].

    Args:
      kernel_sizes, strides, dilations: one integer, or two for height and width.
      paddings: one integer, two for height and width, or four for top, left, bottom and right.
    """
    require_floating("unfold", x=x)
    if len(x.shape) != 4:
        raise ValueError(f"unfold: x must be images [N, C, H, W], got shape {list(x.shape)}")
    sizes = {"kernel_sizes": kernel_sizes, "strides": strides, "dilations": dilations}
    attrs = {name: per_dim(given, 2, f"unfold: {name}") for name, given in sizes.items()}
    given = [paddings] * 4 if isinstance(paddings, int) else list(paddings)
    attrs["paddings"] = given * 2 if len(given) == 2 else per_dim(given, 4, "unfold: paddings")
    return append_single_op("unfold", {"X": x}, {"Y": x.dtype}, attrs, name)["Y"]
