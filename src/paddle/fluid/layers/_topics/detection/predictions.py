"""Layers that turn what a network predicts into boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layers._topics.core.append import append_single_op, require_floating
from refluid.ir import Variable

__all__ = ["box_decoder_and_assign", "polygon_box_transform", "yolo_box"]


def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Converts the corners that EAST predicts, relative to cells of 4 by 4 pixels, to coordinates in the image.

    Args:
      input: of shape [samples, 2 * corners, height, width]; even channels hold x, odd ones y.
    """
    require_floating("polygon_box_transform", input=input)
    return append_single_op("polygon_box_transform", {"Input": input}, {"Output": input.dtype}, name=name)["Output"]


def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Decodes the box of every class and picks that of the class with the highest score, the background aside.

    Args:
      prior_box: boxes of pixels, of shape [N, 4].
      prior_box_var: four numbers that offsets are multiplied by.
      target_box: offsets of shape [N, classes * 4].
      box_score: of shape [N, classes]; class 0 is the background.
      box_clip: the largest logarithm of a ratio of sides.

    Returns:
      boxes of all classes, of shape [N, classes * 4], and the picked ones, of shape [N, 4].
    """
    require_floating("box_decoder_and_assign", prior_box=prior_box, target_box=target_box, box_score=box_score)
    inputs = {"PriorBox": prior_box, "PriorBoxVar": prior_box_var, "TargetBox": target_box, "BoxScore": box_score}
    outputs = {"DecodeBox": prior_box.dtype, "OutputAssignBox": prior_box.dtype}
    made = append_single_op("box_decoder_and_assign", inputs, outputs, {"box_clip": float(box_clip)}, name)
    return made["DecodeBox"], made["OutputAssignBox"]


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    name: str | None = None,
    clip_bbox: bool = True,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """Computes the boxes that a feature map of YOLOv3 predicts, and the scores of their classes.

    Args:
      x: of shape [samples, anchors * (5 + class_num), height, width].
      img_size: height and width of the images, int32 of shape [samples, 2].
      anchors: width and height of the map's anchors, one after the other.
      conf_thresh: boxes and scores are zero where an object is less probable than this.
      downsample_ratio: the size of the network's input over that of the feature map.
      clip_bbox: cut boxes off at the borders of the image.
      scale_x_y: scales the range of centers around each cell.

    Returns:
      boxes of pixels, of shape [samples, boxes, 4], and scores, of shape [samples, boxes, class_num].
    """
    if isinstance(name, bool):  # Fluid 1.8 has clip_bbox seventh
        name, clip_bbox = None, name
    require_floating("yolo_box", x=x)
    check_variable_and_dtype(img_size, "img_size", ("int32",), "yolo_box")
    attrs: dict[str, Any] = {
        "anchors": yolo_anchors("yolo_box", "anchors", anchors),
        "class_num": class_num,
        "conf_thresh": conf_thresh,
        "downsample_ratio": downsample_ratio,
        "clip_bbox": clip_bbox,
        "scale_x_y": scale_x_y,
    }
    made = append_single_op(
        "yolo_box", {"X": x, "ImgSize": img_size}, {"Boxes": x.dtype, "Scores": x.dtype}, attrs, name
    )
    return made["Boxes"], made["Scores"]


def yolo_anchors(layer: str, what: str, value: Any) -> list[int]:
    """Returns anchors, or indices of anchors, as integers."""
    check_type(value, what, (list, tuple), layer)
    return [int(number) for number in value]
