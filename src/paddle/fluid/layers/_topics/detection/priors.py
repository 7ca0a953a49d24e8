"""Boxes around every cell of a feature map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layers._topics.core.append import append_single_op, without_gradient
from refluid.ir import Variable

__all__ = ["anchor_generator", "density_prior_box", "prior_box"]

_VARIANCE = (0.1, 0.1, 0.2, 0.2)


def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: Any,
    max_sizes: Any = None,
    aspect_ratios: Any = (1.0,),
    variance: Sequence[float] = _VARIANCE,
    flip: bool = False,
    clip: bool = False,
    steps: Sequence[float] = (0.0, 0.0),
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """Computes SSD's priors for every cell of the feature map ``input``, in units of ``image``.

    Args:
      min_sizes: sizes in pixels; each gives a box for every aspect ratio.
      max_sizes: as many; each gives a square between its min_size and itself.
      flip: add the inverse of every aspect ratio.
      clip: cut off what is outside of the image.
      steps: width and height of a cell in pixels; 0 stands for the size of the image over that of the feature map.
      offset: the center of a cell, in units of the cell.
      min_max_aspect_ratios_order: the square of max_size comes second instead of last, as in Caffe.

    Returns:
      boxes and variances, of shape [height, width, boxes per cell, 4].
    """
    attrs = {
        "min_sizes": _floats(min_sizes),
        "aspect_ratios": _floats(aspect_ratios),
        "flip": flip,
        "clip": clip,
        "min_max_aspect_ratios_order": min_max_aspect_ratios_order,
        **_cell_attrs("prior_box", variance, steps, offset),
    }
    largest = _floats(max_sizes or [])
    if largest and largest[0] > 0:
        attrs["max_sizes"] = largest
    return _boxes("prior_box", {"Input": input, "Image": image}, "Boxes", attrs, name)


def density_prior_box(
    input: Variable,
    image: Variable,
    densities: Sequence[int] | None = None,
    fixed_sizes: Sequence[float] | None = None,
    fixed_ratios: Sequence[float] | None = None,
    variance: Sequence[float] = _VARIANCE,
    clip: bool = False,
    steps: Sequence[float] = (0.0, 0.0),
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Computes priors of which several cover a cell, in units of ``image``.

    Args:
      densities: how many boxes cover the width and the height of a cell, one number for each of fixed_sizes.
      fixed_sizes, fixed_ratios: sizes in pixels and aspect ratios.
      flatten_to_2d: return boxes and variances of shape [all boxes, 4].

    Returns:
      boxes and variances, of shape [height, width, boxes per cell, 4].
    """
    for what, value in (("densities", densities), ("fixed_sizes", fixed_sizes), ("fixed_ratios", fixed_ratios)):
        check_type(value, what, (list, tuple), "density_prior_box")
    assert densities is not None and fixed_sizes is not None
    if len(densities) != len(fixed_sizes):
        raise ValueError(
            f"density_prior_box: there are {len(densities)} densities for {len(fixed_sizes)} sizes; give one for each"
        )
    attrs = {
        "densities": [int(density) for density in densities],
        "fixed_sizes": _floats(fixed_sizes),
        "fixed_ratios": _floats(fixed_ratios),
        "clip": clip,
        "flatten_to_2d": flatten_to_2d,
        **_cell_attrs("density_prior_box", variance, steps, offset),
    }
    return _boxes("density_prior_box", {"Input": input, "Image": image}, "Boxes", attrs, name)


def anchor_generator(
    input: Variable,
    anchor_sizes: Any = None,
    aspect_ratios: Any = None,
    variance: Sequence[float] = _VARIANCE,
    stride: Sequence[float] | None = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Computes Faster R-CNN's anchors for every cell of the feature map ``input``, in pixels.

    Args:
      anchor_sizes, aspect_ratios: sizes in pixels, and heights over widths; every size comes in every shape.
      stride: width and height of a cell in pixels.
      offset: the center of a cell, in units of the cell.

    Returns:
      anchors and variances, of shape [height, width, anchors per cell, 4].
    """
    attrs = {
        "anchor_sizes": _floats(anchor_sizes),
        "aspect_ratios": _floats(aspect_ratios),
        "variances": list(variance),
        "stride": _pair("anchor_generator", "stride", stride),
        "offset": offset,
    }
    return _boxes("anchor_generator", {"Input": input}, "Anchors", attrs, name)


def _boxes(
    op_type: str, inputs: dict[str, Variable], slot: str, attrs: dict[str, Any], name: str | None
) -> tuple[Variable, Variable]:
    for what, variable in inputs.items():
        check_type(variable, what.lower(), Variable, op_type)
    dtype = inputs["Input"].dtype
    made = append_single_op(op_type, inputs, {slot: dtype, "Variances": dtype}, attrs, name)
    return without_gradient(made[slot]), without_gradient(made["Variances"])


def _cell_attrs(layer: str, variance: Sequence[float], steps: Any, offset: float) -> dict[str, Any]:
    step_w, step_h = _pair(layer, "steps", steps)
    return {"variances": list(variance), "step_w": step_w, "step_h": step_h, "offset": offset}


def _pair(layer: str, what: str, value: Any) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"{layer}: {what} must be the width and the height of a cell, not {value!r}")
    return _floats(value)


def _floats(value: Any) -> list[float]:
    return [float(number) for number in (value if isinstance(value, list | tuple) else [value])]
