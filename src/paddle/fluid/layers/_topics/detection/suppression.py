"""Layers that keep the best of overlapping boxes, and the outputs of detectors that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import (
    append_outputs,
    append_single_op,
    require_floating,
    without_gradient,
)
from paddle.fluid.layers._topics.detection.boxes import box_coder
from paddle.fluid.layers._topics.tensor.shape import transpose
from paddle.fluid.layers.loss import softmax
from refluid.ir import Variable

__all__ = [
    "detection_output",
    "locality_aware_nms",
    "matrix_nms",
    "multiclass_nms",
    "retinanet_detection_output",
]

Detections = Variable | tuple[Variable, Variable]


def _options(**options: Any) -> dict[str, Any]:
    """Attributes; thresholds may be given as integers."""
    return {name: float(value) if "threshold" in name or "eta" in name else value for name, value in options.items()}


def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """Keeps, of the boxes of each class that overlap, the one with the highest score.

    Args:
      bboxes: of shape [images, boxes, 4], or 8 to 32 for polygons; or [boxes, classes, 4], a sequence for each image.
      scores: of shape [images, classes, boxes]; or [boxes, classes] for sequences.
      score_threshold: boxes with a lower score are dropped.
      nms_top_k: how many boxes of each class are looked at, the best ones; -1 for all.
      keep_top_k: how many boxes of all classes are kept in an image; -1 for all.
      nms_threshold: boxes overlap if the intersection over the union is larger.
      normalized: coordinates are in units of the image; otherwise they are pixels, and the last one is inside.
      nms_eta: if less than 1, every kept box makes the threshold that much smaller, down to 0.5.
      background_label: the class that is left out; -1 for none.

    Returns:
      rows of class, score and coordinates, a sequence for each image; a single -1 if there is no box at all.
    """
    require_floating("multiclass_nms", bboxes=bboxes, scores=scores)
    attrs = _options(
        background_label=background_label,
        score_threshold=score_threshold,
        nms_top_k=nms_top_k,
        nms_threshold=nms_threshold,
        nms_eta=nms_eta,
        keep_top_k=keep_top_k,
        normalized=normalized,
    )
    inputs = {"BBoxes": bboxes, "Scores": scores}
    return without_gradient(append_single_op("multiclass_nms", inputs, {"Out": bboxes.dtype}, attrs, name)["Out"])


def multiclass_nms2(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Detections:
    """Keeps boxes as multiclass_nms does, and can tell which; there are no rows if there is no box.

    Args:
      return_index: return the numbers of the boxes among those of all images as well.
    """
    require_floating("multiclass_nms2", bboxes=bboxes, scores=scores)
    attrs = _options(
        background_label=background_label,
        score_threshold=score_threshold,
        nms_top_k=nms_top_k,
        nms_threshold=nms_threshold,
        nms_eta=nms_eta,
        keep_top_k=keep_top_k,
        normalized=normalized,
    )
    return _with_index("multiclass_nms2", {"BBoxes": bboxes, "Scores": scores}, attrs, return_index, name)


def _with_index(
    type: str, inputs: dict[str, Variable], attrs: dict[str, Any], return_index: bool, name: str | None
) -> Detections:
    made = append_single_op(type, inputs, {"Out": inputs["BBoxes"].dtype, "Index": "int32"}, attrs, name)
    out, index = map(without_gradient, (made["Out"], made["Index"]))
    return (out, index) if return_index else out


def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Variable:
    """Merges boxes that overlap with the one before them, weighted by their scores; then as multiclass_nms.

    Args:
      bboxes: of shape [images, boxes, 4], or 8 to 32 for polygons.
      scores: of one class, of shape [images, 1, boxes].
    """
    require_floating("locality_aware_nms", bboxes=bboxes, scores=scores)
    if len(scores.shape) != 3 or scores.shape[1] != 1:
        raise ValueError(f"locality_aware_nms: scores must be of one class, [images, 1, boxes], not {scores.shape}")
    attrs = _options(
        background_label=background_label,
        score_threshold=score_threshold,
        nms_top_k=nms_top_k,
        nms_threshold=nms_threshold,
        nms_eta=nms_eta,
        keep_top_k=keep_top_k,
        normalized=normalized,
    )
    inputs = {"BBoxes": bboxes, "Scores": scores}
    return without_gradient(append_single_op("locality_aware_nms", inputs, {"Out": bboxes.dtype}, attrs, name)["Out"])


def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Detections:
    """Lowers the score of each box by how much it overlaps with better ones of its class.

    Args:
      bboxes: of shape [images, boxes, 4].
      scores: of shape [images, classes, boxes].
      post_threshold: boxes with a lower score afterwards are dropped.
      use_gaussian: let scores decay by a Gaussian of ``gaussian_sigma``; otherwise linearly.
      return_index: return the numbers of the boxes among those of all images as well.

    Returns:
      rows of class, score and coordinates, the best first, a sequence for each image.
    """
    require_floating("matrix_nms", bboxes=bboxes, scores=scores)
    attrs = _options(
        background_label=background_label,
        score_threshold=score_threshold,
        post_threshold=post_threshold,
        nms_top_k=nms_top_k,
        gaussian_sigma=float(gaussian_sigma),
        use_gaussian=use_gaussian,
        keep_top_k=keep_top_k,
        normalized=normalized,
    )
    return _with_index("matrix_nms", {"BBoxes": bboxes, "Scores": scores}, attrs, return_index, name)


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Any,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Detections:
    """Turns what an SSD predicts into boxes: decodes them, takes the softmax of scores and suppresses.

    Args:
      loc: offsets of shape [images, priors, 4].
      scores: of shape [images, priors, classes], before the softmax.
      prior_box, prior_box_var: as for box_coder.

    Other arguments and the result are as for multiclass_nms; with ``return_index`` as for multiclass_nms2.
    """
    helper = LayerHelper("detection_output")
    boxes = box_coder(prior_box, prior_box_var, loc, code_type="decode_center_size")
    scores = without_gradient(transpose(softmax(scores), [0, 2, 1]))
    attrs = _options(
        background_label=background_label,
        score_threshold=score_threshold,
        nms_top_k=nms_top_k,
        nms_threshold=nms_threshold,
        nms_eta=nms_eta,
        keep_top_k=keep_top_k,
        normalized=True,
    )
    outputs = {"Out": boxes.dtype, **({"Index": "int32"} if return_index else {})}
    type = "multiclass_nms2" if return_index else "multiclass_nms"
    made = append_outputs(helper, {"BBoxes": boxes, "Scores": scores}, outputs, attrs, type)
    out = without_gradient(made["Out"])
    return (out, without_gradient(made["Index"])) if return_index else out


def retinanet_detection_output(
    bboxes: Sequence[Variable],
    scores: Sequence[Variable],
    anchors: Sequence[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Variable:
    """Turns what a RetinaNet predicts into boxes.

    Args:
      bboxes: offsets of each level, of shape [images, anchors, 4].
      scores: probabilities of each level, of shape [images, anchors, classes].
      anchors: of each level, of shape [anchors, 4].
      im_info: height, width and scale of each image, of shape [images, 3].
      score_threshold: boxes with a lower score are dropped; those of the last level never are.
      nms_top_k: how many boxes of each level are looked at.

    Other arguments are as for multiclass_nms.

    Returns:
      rows of class, from 1 on, score and coordinates in the original image, the best first, a sequence for each image.
    """
    for what, value in (("bboxes", bboxes), ("scores", scores), ("anchors", anchors)):
        check_type(value, what, (list, tuple), "retinanet_detection_output")
    inputs = {"BBoxes": list(bboxes), "Scores": list(scores), "Anchors": list(anchors), "ImInfo": im_info}
    attrs = _options(
        score_threshold=score_threshold,
        nms_top_k=nms_top_k,
        nms_threshold=nms_threshold,
        nms_eta=nms_eta,
        keep_top_k=keep_top_k,
    )
    outputs = {"Out": bboxes[0].dtype}
    return without_gradient(append_single_op("retinanet_detection_output", inputs, outputs, attrs)["Out"])
