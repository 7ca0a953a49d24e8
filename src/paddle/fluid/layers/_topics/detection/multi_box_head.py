"""SSD's head: priors on several feature maps, and the convolutions that predict their offsets and classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.layers._topics.detection.priors import prior_box
from paddle.fluid.layers._topics.nn.conv import conv2d
from paddle.fluid.layers._topics.tensor.concat import concat
from paddle.fluid.layers._topics.tensor.shape import flatten, reshape, transpose
from refluid.ir import Variable

__all__ = ["multi_box_head"]


def multi_box_head(
    inputs: Sequence[Variable],
    image: Variable,
    base_size: int,
    num_classes: int,
    aspect_ratios: Sequence[Any],
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Sequence[Any] | None = None,
    max_sizes: Sequence[Any] | None = None,
    steps: Sequence[float] | None = None,
    step_w: Sequence[float] | None = None,
    step_h: Sequence[float] | None = None,
    offset: float = 0.5,
    variance: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """Appends the head of an SSD: for every prior of every feature map, four offsets and a score for each class.

    Args:
      inputs: the feature maps.
      base_size: the size of the image that ratios refer to.
      aspect_ratios: for each map, one or several; see prior_box.
      min_ratio, max_ratio: the smallest and the largest size of priors in percent of base_size; the sizes of the maps
        in between follow from them. Only for more than two maps.
      min_sizes, max_sizes: the sizes for each map instead, one or several.
      steps: for each map, width and height of a cell in pixels; or widths and heights apart, as step_w and step_h.
      kernel_size, pad, stride: of the convolutions.

    Other arguments are as for prior_box.

    Returns:
      offsets [samples, priors, 4], scores [samples, priors, num_classes], and the priors and variances [priors, 4].
    """
    if not isinstance(inputs, list | tuple):
        raise ValueError(f"multi_box_head: inputs must be a list of feature maps, not {inputs!r}")
    count = len(inputs)
    if min_sizes is None or max_sizes is None:
        min_sizes, max_sizes = _sizes(count, base_size, min_ratio, max_ratio)
    if steps is not None:
        step_w = step_h = steps
    for what, values in (
        ("aspect_ratios", aspect_ratios),
        ("min_sizes", min_sizes),
        ("max_sizes", max_sizes),
        ("step_w" if steps is None else "steps", step_w),
        ("step_h", step_h),
    ):
        if values is not None and (not isinstance(values, list | tuple) or len(values) != count):
            raise ValueError(f"multi_box_head: {what} must have an element for each of {count} inputs, not {values!r}")
    predicted: dict[str, list[Variable]] = {"offsets": [], "scores": []}
    priors = []
    for i, x in enumerate(inputs):
        cell = (step_w[i] if step_w else 0.0, step_h[i] if step_h else 0.0)
        shapes = min_sizes[i], max_sizes[i], aspect_ratios[i], variance, flip, clip, cell, offset
        boxes = prior_box(x, image, *shapes, None, min_max_aspect_ratios_order)
        priors.append(boxes)
        for kind, numbers in (("offsets", 4), ("scores", num_classes)):
            out = conv2d(x, boxes[0].shape[2] * numbers, kernel_size, stride, pad)
            predicted[kind].append(flatten(transpose(out, [0, 2, 3, 1]), axis=1))
    flat = [[flatten(each, axis=3) for each in pair] for pair in priors]
    boxes, variances = (_joined([pair[i] for pair in flat], 0) for i in (0, 1))
    offsets = reshape(_joined(predicted["offsets"], 1), [0, -1, 4])
    scores = reshape(_joined(predicted["scores"], 1), [0, -1, num_classes])
    for prior in (boxes, variances):
        prior.stop_gradient = True
    return offsets, scores, boxes, variances


def _sizes(count: int, base_size: int, min_ratio: Any, max_ratio: Any) -> tuple[list[float], list[float]]:
    """The sizes of the maps' priors: the first has a tenth of the base, the others are spread between the ratios."""
    if count <= 2 or min_ratio is None or max_ratio is None:
        raise ValueError(
            "multi_box_head: pass min_sizes and max_sizes, or, for more than two inputs, min_ratio and max_ratio"
        )
    step = (max_ratio - min_ratio) // (count - 2)
    ratios = range(min_ratio, max_ratio + 1, step)
    smallest = [base_size * 0.1, *(base_size * ratio / 100.0 for ratio in ratios)]
    largest = [base_size * 0.2, *(base_size * (ratio + step) / 100.0 for ratio in ratios)]
    return smallest[:count], largest[:count]


def _joined(parts: list[Variable], axis: int) -> Variable:
    return parts[0] if len(parts) == 1 else concat(parts, axis)
