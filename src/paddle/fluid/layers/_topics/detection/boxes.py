"""Overlaps of boxes, offsets between boxes and priors, and clipping."""

from __future__ import annotations

from typing import Any

from paddle.fluid.layers._topics.core.append import append_single_op, require_floating
from refluid.ir import Variable

__all__ = ["box_clip", "box_coder", "iou_similarity"]


def iou_similarity(x: Variable, y: Variable, name: str | None = None, box_normalized: bool = True) -> Variable:
    """Computes the intersection over the union of every box of ``x`` and every box of ``y``.

    Args:
      x, y: boxes of shape [N, 4] and [M, 4]; x may hold the boxes of several images as sequences.
      box_normalized: coordinates are in units of the image; otherwise they are pixels, and the last one is inside.

    Returns:
      overlaps of shape [N, M], sequences if x holds sequences.
    """
    if isinstance(name, bool):  # Fluid 1.8 has box_normalized third
        name, box_normalized = None, name
    require_floating("iou_similarity", x=x, y=y)
    attrs = {"box_normalized": box_normalized}
    return append_single_op("iou_similarity", {"X": x, "Y": y}, {"Out": x.dtype}, attrs, name)["Out"]


def box_coder(
    prior_box: Variable,
    prior_box_var: Any,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Encodes boxes as offsets from priors, or decodes such offsets.

    Args:
      prior_box: priors of shape [M, 4].
      prior_box_var: what offsets are divided by: a variable of shape [M, 4], four numbers, or None.
      target_box: boxes of shape [N, 4] to encode; offsets of shape [N, M, 4] (axis 0) or [M, N, 4] (axis 1) to decode.
      code_type: encode_center_size or decode_center_size.
      box_normalized: coordinates are in units of the image; otherwise they are pixels, and the last one is inside.
      axis: 0 if columns of target_box belong to priors, 1 if rows do; for decoding only.

    Returns:
      offsets of shape [N, M, 4], or boxes of the shape of target_box.
    """
    require_floating("box_coder", prior_box=prior_box, target_box=target_box)
    inputs = {"PriorBox": prior_box, "TargetBox": target_box}
    attrs: dict[str, Any] = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis}
    if isinstance(prior_box_var, Variable):
        inputs["PriorBoxVar"] = prior_box_var
    elif isinstance(prior_box_var, list):
        attrs["variance"] = [float(number) for number in prior_box_var]
    elif prior_box_var is not None:
        raise TypeError(f"box_coder: prior_box_var must be a variable, a list or None, not {prior_box_var!r}")
    return append_single_op("box_coder", inputs, {"OutputBox": prior_box.dtype}, attrs, name)["OutputBox"]


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Cuts off what is outside of the image.

    Args:
      input: boxes of pixels, of shape [N, 4] or more dims; a sequence for each image.
      im_info: height, width and scale of each image, of shape [images, 3].
    """
    require_floating("box_clip", input=input, im_info=im_info)
    inputs = {"Input": input, "ImInfo": im_info}
    return append_single_op("box_clip", inputs, {"Output": input.dtype}, name=name)["Output"]
