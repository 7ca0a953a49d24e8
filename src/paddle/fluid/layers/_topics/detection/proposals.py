"""Layers that make region proposals, and assign them to the levels of a feature pyramid."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_single_op, require_floating, without_gradient
from refluid.ir import Variable

__all__ = ["collect_fpn_proposals", "distribute_fpn_proposals", "generate_proposals"]


def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> tuple[Variable, ...]:
    """Proposes regions: the best boxes that a region proposal network predicts and that do not overlap by much.

    Args:
      scores: of shape [images, kinds of anchors, height, width].
      bbox_deltas: offsets of shape [images, 4 * kinds, height, width].
      im_info: height, width and scale of each image, of shape [images, 3].
      anchors, variances: as of anchor_generator.
      pre_nms_top_n: how many boxes of an image are looked at, those with the highest scores.
      post_nms_top_n: how many are kept.
      nms_thresh: boxes overlap if the intersection over the union is larger.
      min_size: the smallest height and width in the original image.
      eta: if less than 1, every kept box makes nms_thresh that much smaller, down to 0.5.
      return_rois_num: return the number of regions up to each image as well.

    Returns:
      regions of shape [regions, 4] and scores of shape [regions, 1], a sequence for each image.
    """
    require_floating("generate_proposals", scores=scores, bbox_deltas=bbox_deltas, im_info=im_info)
    require_floating("generate_proposals", anchors=anchors, variances=variances)
    inputs = {
        "Scores": scores,
        "BboxDeltas": bbox_deltas,
        "ImInfo": im_info,
        "Anchors": anchors,
        "Variances": variances,
    }
    attrs = {
        "pre_nms_topN": pre_nms_top_n,
        "post_nms_topN": post_nms_top_n,
        "nms_thresh": float(nms_thresh),
        "min_size": float(min_size),
        "eta": float(eta),
    }
    outputs = {"RpnRois": bbox_deltas.dtype, "RpnRoiProbs": scores.dtype, "RpnRoisLod": "int32"}
    made = append_single_op("generate_proposals", inputs, outputs, attrs, name)
    regions, points, number = (without_gradient(made[slot]) for slot in outputs)
    return (regions, points, number) if return_rois_num else (regions, points)


def distribute_fpn_proposals(
    fpn_rois: Variable, min_level: int, max_level: int, refer_level: int, refer_scale: int, name: str | None = None
) -> tuple[list[Variable], Variable]:
    """Assigns regions to the levels of a feature pyramid by their size.

    Args:
      fpn_rois: of shape [regions, 4], a sequence for each image.
      min_level, max_level: the levels.
      refer_level: the level of regions of refer_scale by refer_scale pixels.

    Returns:
      the regions of each level, and where each region is among those of all levels, one after the other: what is
      computed for them can be gathered in the order of fpn_rois.
    """
    require_floating("distribute_fpn_proposals", fpn_rois=fpn_rois)
    helper = LayerHelper("distribute_fpn_proposals", name=name)
    count = max_level - min_level + 1
    regions = [helper.create_variable_for_type_inference(fpn_rois.dtype) for _ in range(count)]
    restore = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="distribute_fpn_proposals",
        inputs={"FpnRois": fpn_rois},
        outputs={"MultiFpnRois": regions, "RestoreIndex": restore},
        attrs={
            "min_level": min_level,
            "max_level": max_level,
            "refer_level": refer_level,
            "refer_scale": refer_scale,
        },
    )
    return regions, restore


def collect_fpn_proposals(
    multi_rois: Sequence[Variable],
    multi_scores: Sequence[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """Keeps the regions of all levels of a feature pyramid with the highest scores.

    Args:
      multi_rois: regions of each level, of shape [regions, 4], a sequence for each image.
      multi_scores: their scores, of shape [regions, 1].
      min_level, max_level: the levels to take, from the first on.
      post_nms_top_n: how many regions are kept, of all images together.

    Returns:
      regions of shape [regions, 4], a sequence for each image.
    """
    check_type(multi_rois, "multi_rois", list, "collect_fpn_proposals")
    check_type(multi_scores, "multi_scores", list, "collect_fpn_proposals")
    count = max_level - min_level + 1
    inputs = {"MultiLevelRois": multi_rois[:count], "MultiLevelScores": multi_scores[:count]}
    outputs = {"FpnRois": multi_rois[0].dtype}
    made = append_single_op("collect_fpn_proposals", inputs, outputs, {"post_nms_topN": post_nms_top_n}, name)
    return without_gradient(made["FpnRois"])
