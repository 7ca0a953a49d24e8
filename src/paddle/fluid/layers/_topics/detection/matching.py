"""Layers that decide which object each prior has to find, and the loss of an SSD."""

from __future__ import annotations

from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_outputs, append_single_op, without_gradient
from paddle.fluid.layers._topics.detection.boxes import box_coder, iou_similarity
from paddle.fluid.layers._topics.tensor.create import cast
from paddle.fluid.layers._topics.tensor.create import shape as shape_of
from paddle.fluid.layers._topics.tensor.reduce import reduce_sum  # pyright: ignore[reportAttributeAccessIssue]
from paddle.fluid.layers._topics.tensor.shape import flatten, reshape
from paddle.fluid.layers._topics.tensor.slicing import slice as slice_of
from paddle.fluid.layers.loss import smooth_l1, softmax_with_cross_entropy
from refluid.ir import Variable

__all__ = ["bipartite_match", "ssd_loss", "target_assign"]


def bipartite_match(
    dist_matrix: Variable, match_type: str | None = None, dist_threshold: float | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Matches columns with the rows that are closest to them, each row and column once, the closest pair first.

    Args:
      dist_matrix: of shape [rows, columns]; larger is closer. The rows of several images are sequences.
      match_type: bipartite, or per_prediction to match columns that are left with their closest row as well.
      dist_threshold: how close that row must be; 0.5 if None.

    Returns:
      the row of each column or -1, int32, and how close they are, both of shape [images, columns].
    """
    outputs = {"ColToRowMatchIndices": "int32", "ColToRowMatchDist": dist_matrix.dtype}
    attrs = {
        "match_type": "bipartite" if match_type is None else match_type,
        "dist_threshold": 0.5 if dist_threshold is None else dist_threshold,
    }
    made = append_single_op("bipartite_match", {"DistMat": dist_matrix}, outputs, attrs, name)
    return made["ColToRowMatchIndices"], made["ColToRowMatchDist"]


def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: int | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Gives every prior the target of the object that it is matched with.

    Args:
      input: of shape [objects, P, K], a sequence for each image; prior j takes that at [object, j % P].
      matched_indices: the object of each prior or -1, int32 of shape [images, priors].
      negative_indices: priors that are negatives, int32, a sequence for each image.
      mismatch_value: the target of priors without an object; 0 if None.

    Returns:
      targets of shape [images, priors, K], and weights of shape [images, priors, 1]: 1 for priors that have an object
      or are negatives, 0 for the others.
    """
    inputs = {"X": input, "MatchIndices": matched_indices, "NegIndices": negative_indices}
    attrs = {"mismatch_value": mismatch_value or 0}
    made = append_single_op("target_assign", inputs, {"Out": input.dtype, "OutWeight": "float32"}, attrs, name)
    return made["Out"], made["OutWeight"]


def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Any = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """Computes the loss of an SSD: of the boxes of priors that are matched, and of classes, with mined negatives.

    Args:
      location: predicted offsets of shape [images, priors, 4].
      confidence: predicted scores of shape [images, priors, classes].
      gt_box: objects of shape [objects, 4], a sequence for each image.
      gt_label: their classes of shape [objects, 1].
      prior_box: of shape [priors, 4].
      prior_box_var: what offsets are divided by; see box_coder.
      background_label: the class of priors without an object.
      overlap_threshold: how much priors must overlap with an object to be matched with match_type per_prediction.
      neg_pos_ratio: how many negatives there are for each matched prior.
      neg_overlap: priors that overlap more are no negatives.
      loc_loss_weight, conf_loss_weight: the weights of the two parts.
      normalize: divide by the number of matched priors.

    Returns:
      the loss of each image, of shape [images, 1].
    """
    helper = LayerHelper("ssd_loss")
    if mining_type != "max_negative":
        raise ValueError(f"ssd_loss: mining_type must be max_negative, not {mining_type!r}")
    shape = shape_of(confidence)

    def rows(x: Variable) -> Variable:
        return flatten(x, axis=2)

    overlaps = iou_similarity(x=gt_box, y=prior_box)
    matches, distance = bipartite_match(overlaps, match_type, overlap_threshold)
    gt_label = without_gradient(reshape(gt_label, (0, -1, 1)))
    target, _ = target_assign(gt_label, matches, mismatch_value=background_label)
    confidence = rows(confidence)
    target = without_gradient(rows(cast(target, "int64")))
    losses = softmax_with_cross_entropy(confidence, target)
    by_image = without_gradient(slice_of(shape, axes=[0], starts=[0], ends=[2]))
    losses = without_gradient(reshape(losses, (-1, 0), actual_shape=by_image))
    mined = append_outputs(
        helper,
        {"ClsLoss": losses, "LocLoss": None, "MatchIndices": matches, "MatchDist": distance},
        {"NegIndices": "int32", "UpdatedMatchIndices": matches.dtype},
        {
            "neg_pos_ratio": neg_pos_ratio,
            "neg_dist_threshold": neg_overlap,
            "mining_type": mining_type,
            "sample_size": sample_size or 0,
        },
        "mine_hard_examples",
    )
    matches = mined["UpdatedMatchIndices"]
    codes = box_coder(prior_box=prior_box, prior_box_var=prior_box_var, target_box=gt_box)
    box, box_weight = target_assign(codes, matches, mismatch_value=background_label)
    label, label_weight = target_assign(gt_label, matches, mined["NegIndices"], background_label)
    label = without_gradient(cast(rows(label), "int64"))
    of_class = softmax_with_cross_entropy(confidence, label) * without_gradient(rows(label_weight))
    location, box = rows(location), without_gradient(rows(box))
    of_box = smooth_l1(location, box)
    box_weight = without_gradient(rows(box_weight))
    of_box = of_box * box_weight
    loss = conf_loss_weight * of_class + loc_loss_weight * of_box
    loss = reduce_sum(reshape(loss, (-1, 0), actual_shape=by_image), dim=1, keep_dim=True)
    return loss / reduce_sum(box_weight) if normalize else loss
