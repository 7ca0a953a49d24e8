"""Layers that say what anchors and proposals have to predict, and which of them count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layers._topics.core.append import append_single_op, require_floating, without_gradient
from paddle.fluid.layers._topics.tensor.index import gather
from paddle.fluid.layers._topics.tensor.shape import reshape
from refluid.ir import Variable

__all__ = ["generate_mask_labels", "generate_proposal_labels", "retinanet_target_assign", "rpn_target_assign"]

_ANCHOR_TARGETS = ("LocationIndex", "ScoreIndex", "TargetLabel", "TargetBBox", "BBoxInsideWeight")


def _targets(type: str, inputs: dict[str, Variable], outputs: dict[str, Any], attrs: dict[str, Any]) -> list[Variable]:
    """Appends an op whose outputs no gradient flows through, and returns them in order."""
    made = append_single_op(type, inputs, outputs, attrs)
    return [without_gradient(made[slot]) for slot in outputs]


def _dtypes(anchor: Variable) -> dict[str, Any]:
    floating = {"TargetBBox", "BBoxInsideWeight"}
    return {slot: anchor.dtype if slot in floating else "int32" for slot in _ANCHOR_TARGETS}


def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, ...]:
    """Chooses the anchors that a region proposal network learns from, and their targets.

    Args:
      bbox_pred: predicted offsets of shape [images, anchors, 4].
      cls_logits: predicted logits of shape [images, anchors, 1].
      anchor_box: of shape [anchors, 4].
      anchor_var: is not used, as in Fluid.
      gt_boxes: objects in the original image, of shape [objects, 4], a sequence for each image.
      is_crowd: 1 for objects to leave out, int32 of shape [objects, 1].
      im_info: height, width and scale of each image, of shape [images, 3].
      rpn_batch_size_per_im: how many anchors of an image are chosen.
      rpn_straddle_thresh: by how many pixels anchors may reach beyond the image; negative for any number.
      rpn_fg_fraction: the largest share of positives among them.
      rpn_positive_overlap: anchors that overlap with an object by that much are positives.
      rpn_negative_overlap: those that overlap with none by that much are negatives.
      use_random: choose any of them; otherwise the first ones.

    Returns:
      predicted logits and offsets of the chosen anchors, the labels of the former (1 or 0), and targets and weights of
      the latter.
    """
    for name, variable in (("gt_boxes", gt_boxes), ("im_info", im_info), ("anchor_box", anchor_box)):
        require_floating("rpn_target_assign", **{name: variable})
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "IsCrowd": is_crowd, "ImInfo": im_info}
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im,
        "rpn_straddle_thresh": float(rpn_straddle_thresh),
        "rpn_positive_overlap": float(rpn_positive_overlap),
        "rpn_negative_overlap": float(rpn_negative_overlap),
        "rpn_fg_fraction": float(rpn_fg_fraction),
        "use_random": use_random,
    }
    place, scored, label, box, weight = _targets("rpn_target_assign", inputs, _dtypes(anchor_box), attrs)
    logits, offsets = reshape(cls_logits, (-1, 1)), reshape(bbox_pred, (-1, 4))
    return gather(logits, scored), gather(offsets, place), label, box, weight


def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, ...]:
    """Chooses the anchors that a RetinaNet learns from, and their targets.

    Args:
      cls_logits: predicted logits of shape [images, anchors, num_classes].
      gt_labels: the classes of the objects, from 1 on, int32 of shape [objects, 1].

    Other arguments are as for rpn_target_assign.

    Returns:
      as rpn_target_assign, with classes for labels, and at last the number of positives of each image, plus one.
    """
    for name, variable in (("gt_boxes", gt_boxes), ("im_info", im_info), ("anchor_box", anchor_box)):
        require_floating("retinanet_target_assign", **{name: variable})
    check_variable_and_dtype(gt_labels, "gt_labels", ("int32",), "retinanet_target_assign")
    inputs = {
        "Anchor": anchor_box,
        "GtBoxes": gt_boxes,
        "GtLabels": gt_labels,
        "IsCrowd": is_crowd,
        "ImInfo": im_info,
    }
    attrs = {"positive_overlap": float(positive_overlap), "negative_overlap": float(negative_overlap)}
    outputs = {**_dtypes(anchor_box), "ForegroundNumber": "int32"}
    place, scored, label, box, weight, number = _targets("retinanet_target_assign", inputs, outputs, attrs)
    logits, offsets = reshape(cls_logits, (-1, num_classes)), reshape(bbox_pred, (-1, 4))
    return gather(logits, scored), gather(offsets, place), label, box, weight, number


def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Variable, ...]:
    """Chooses the proposals that the second stage of a detector learns from, and their targets.

    Args:
      rpn_rois: proposals of shape [regions, 4], a sequence for each image.
      gt_classes: the classes of the objects, from 1 on, int32 of shape [objects, 1].
      is_crowd: 1 for objects to leave out, int32 of shape [objects, 1].
      gt_boxes: objects in the original image, of shape [objects, 4], a sequence for each image.
      im_info: height, width and scale of each image, of shape [images, 3].
      batch_size_per_im: how many regions of an image are chosen.
      fg_fraction: the largest share of positives among them.
      fg_thresh: regions that overlap with an object by that much are positives.
      bg_thresh_lo, bg_thresh_hi: those that overlap by at least and less than that are negatives.
      bbox_reg_weights: what targets are divided by.
      class_nums: the number of classes, with the background.
      use_random: choose any of them; otherwise the first ones.
      is_cls_agnostic: predict the same box for all classes.
      is_cascade_rcnn: the regions are those of an earlier stage; take all.

    Returns:
      regions of shape [chosen, 4], their classes, the targets of their boxes, of shape [chosen, 4 * class_nums], and
      the weights of these, twice.
    """
    check_variable_and_dtype(gt_classes, "gt_classes", ("int32",), "generate_proposal_labels")
    check_variable_and_dtype(is_crowd, "is_crowd", ("int32",), "generate_proposal_labels")
    inputs = {
        "RpnRois": rpn_rois,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtBoxes": gt_boxes,
        "ImInfo": im_info,
    }
    attrs = {
        "batch_size_per_im": batch_size_per_im,
        "fg_fraction": float(fg_fraction),
        "fg_thresh": float(fg_thresh),
        "bg_thresh_hi": float(bg_thresh_hi),
        "bg_thresh_lo": float(bg_thresh_lo),
        "bbox_reg_weights": [float(weight) for weight in bbox_reg_weights],
        "class_nums": class_nums,
        "use_random": use_random,
        "is_cls_agnostic": is_cls_agnostic,
        "is_cascade_rcnn": is_cascade_rcnn,
    }
    dtype = rpn_rois.dtype
    weights = ("BboxTargets", "BboxInsideWeights", "BboxOutsideWeights")
    outputs = {"Rois": dtype, "LabelsInt32": gt_classes.dtype, **dict.fromkeys(weights, dtype)}
    return tuple(_targets("generate_proposal_labels", inputs, outputs, attrs))


def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> tuple[Variable, Variable, Variable]:
    """Draws the masks that the regions of a Mask R-CNN have to predict.

    Args:
      im_info: height, width and scale of each image, of shape [images, 3].
      gt_classes, is_crowd: as for generate_proposal_labels.
      gt_segms: corners of polygons in the original image, of shape [corners, 2]; sequences of images, objects and
        polygons.
      rois, labels_int32: regions and their classes, as generate_proposal_labels returns them.
      num_classes: the number of classes, with the background.
      resolution: height and width of a mask.

    Returns:
      the regions that have an object, of shape [masks, 4]; which of the given ones they are, of shape [masks, 1]; and
      masks of shape [masks, num_classes * resolution * resolution]: 1 inside, 0 outside, and -1 for other classes.
    """
    inputs = {
        "ImInfo": im_info,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtSegms": gt_segms,
        "Rois": rois,
        "LabelsInt32": labels_int32,
    }
    outputs = {"MaskRois": rois.dtype, "RoiHasMaskInt32": gt_classes.dtype, "MaskInt32": gt_classes.dtype}
    attrs = {"num_classes": num_classes, "resolution": resolution}
    regions, places, masks = _targets("generate_mask_labels", inputs, outputs, attrs)
    return regions, places, masks
