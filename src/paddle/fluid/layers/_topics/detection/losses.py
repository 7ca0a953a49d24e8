"""Losses of one-stage detectors."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layers._topics.core.append import append_single_op, require_floating, require_integer
from paddle.fluid.layers._topics.detection.predictions import yolo_anchors
from refluid.ir import Variable

__all__ = ["sigmoid_focal_loss", "yolov3_loss"]


def sigmoid_focal_loss(
    x: Variable, label: Variable, fg_num: Variable, gamma: float = 2, alpha: float = 0.25
) -> Variable:
    """Computes the focal loss of every class, which counts hard examples more than easy ones.

    Args:
      x: logits of shape [N, classes].
      label: int32 of shape [N, 1]: the class from 1 on, 0 for the background, -1 for rows to ignore.
      fg_num: the number of objects, int32 of shape [1], by which the loss is divided.
      gamma: how much less easy examples count.
      alpha: the weight of the right class; 1 - alpha is that of the others.

    Returns:
      losses of the shape of x.
    """
    require_floating("sigmoid_focal_loss", x=x)
    check_variable_and_dtype(label, "label", ("int32",), "sigmoid_focal_loss")
    check_variable_and_dtype(fg_num, "fg_num", ("int32",), "sigmoid_focal_loss")
    inputs = {"X": x, "Label": label, "FgNum": fg_num}
    attrs = {"gamma": float(gamma), "alpha": float(alpha)}
    return append_single_op("sigmoid_focal_loss", inputs, {"Out": x.dtype}, attrs)["Out"]


def yolov3_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """Computes the loss of a feature map of YOLOv3.

    Args:
      x: of shape [samples, masked anchors * (5 + class_num), height, width].
      gt_box: objects by center and size, in units of the image, of shape [samples, objects, 4]; those without size are
        padding.
      gt_label: their classes, of shape [samples, objects].
      anchors: width and height of the anchors of all feature maps, one after the other.
      anchor_mask: which of them are this map's.
      ignore_thresh: cells that overlap with an object by more, but are not responsible for it, do not count.
      downsample_ratio: the size of the network's input over that of the feature map.
      gt_score: the weight of each object, of shape [samples, objects], for samples that are mixed.
      use_label_smooth: smooth the targets of classes.
      scale_x_y: scales the range of centers around each cell.

    Returns:
      the loss of each sample, of shape [samples].
    """
    require_floating("yolov3_loss", x=x, gt_box=gt_box)
    require_integer("yolov3_loss", gt_label=gt_label)
    inputs = {"X": x, "GTBox": gt_box, "GTLabel": gt_label}
    if gt_score is not None:
        require_floating("yolov3_loss", gt_score=gt_score)
        inputs["GTScore"] = gt_score
    attrs = {
        "anchors": yolo_anchors("yolov3_loss", "anchors", anchors),
        "anchor_mask": yolo_anchors("yolov3_loss", "anchor_mask", anchor_mask),
        "class_num": class_num,
        "ignore_thresh": ignore_thresh,
        "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
        "scale_x_y": scale_x_y,
    }
    outputs = {"Loss": x.dtype, "ObjectnessMask": "int32", "GTMatchMask": "int32"}
    return append_single_op("yolov3_loss", inputs, outputs, attrs, name)["Loss"]
