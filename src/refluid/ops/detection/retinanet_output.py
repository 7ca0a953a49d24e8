"""retinanet_detection_output: the detections of a RetinaNet."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import plain
from refluid.ops.detection.suppression import best_first, detected, found_by_class


def _infer(inputs: Described, attrs: dict[str, Any]) -> Described:
    boxes, scores, anchors = (inputs[slot] for slot in ("BBoxes", "Scores", "Anchors"))
    if not len(boxes) == len(scores) == len(anchors):
        raise ValueError(
            f"BBoxes, Scores and Anchors must be of as many levels, but are of {len(boxes)}, {len(scores)} and "
            f"{len(anchors)}"
        )
    for i, (box, score, anchor) in enumerate(zip(boxes, scores, anchors, strict=True)):
        if len(box.shape) != 3 or len(score.shape) != 3 or box.shape[2] != 4 or anchor.shape[-1:] != (4,):
            raise ValueError(
                f"level {i} must have BBoxes [images, anchors, 4], Scores [images, anchors, classes] and Anchors "
                f"[anchors, 4], but has {list(box.shape)}, {list(score.shape)} and {list(anchor.shape)}"
            )
    return {"Out": [ShapeDtype((boxes[0].shape[1], 6), boxes[0].dtype, lod_level=1)]}


@op(
    "retinanet_detection_output",
    inputs="BBoxes* Scores* Anchors* ImInfo",
    outputs="Out",
    grad=None,
    host=True,
    lod="aware",
    infer=_infer,
    finds_rows=True,
)
def retinanet_detection_output(
    boxes, scores, anchors, im_info, *, score_threshold, nms_top_k, nms_threshold, nms_eta, keep_top_k
):
    """The best boxes of each image of all levels: rows of class, from 1 on, score and coordinates, the best first.

    Each level offers its ``nms_top_k`` best scores above the threshold; the last level those above 0.
    """
    levels = [[np.asarray(plain(each)) for each in level] for level in zip(boxes, scores, anchors, strict=True)]
    suppress = import_module("refluid.kernels.host.suppression").suppress
    dtype, images = levels[0][0].dtype, []

    def search(own, points):
        places = suppress(own, best_first(points, 0.0, -1), nms_threshold, nms_eta, 1)
        return places, points[places]

    for i, info in enumerate(np.asarray(plain(im_info))):
        offered = []
        for number, (codes, points, priors) in enumerate(levels):
            threshold = score_threshold if number < len(levels) - 1 else 0.0
            order = best_first(points[i].reshape(-1), threshold, nms_top_k)
            place, label = np.divmod(order, points.shape[2])
            offered.append((_decoded(codes[i][place], priors[place], info), points[i].reshape(-1)[order], label))
        own, points, labels = (np.concatenate(each) for each in zip(*offered, strict=True))
        found = found_by_class(own, points, labels, search)
        order = np.argsort(-found.scores, kind="stable")
        found = found.at(order if keep_top_k < 0 else order[:keep_top_k])
        images.append((found._replace(labels=found.labels + 1), own))
    return detected(images, dtype)


def _decoded(codes: np.ndarray, anchors: np.ndarray, info: np.ndarray) -> np.ndarray:
    """Boxes in the original image, which they are cut off at."""
    half, one = codes.dtype.type(0.5), codes.dtype.type(1)
    size = anchors[:, 2:] - anchors[:, :2] + one
    center = codes[:, :2] * size + (anchors[:, :2] + half * size)
    reach = np.exp(codes[:, 2:]) * size * half
    boxes = np.concatenate([center - reach, center + reach - one], 1) / info[2]
    last = np.floor(info[[1, 0, 1, 0]] / info[2] + half) - one
    return np.ascontiguousarray(np.clip(boxes, codes.dtype.type(0), last), codes.dtype)
