"""Ops that keep the best of overlapping boxes. They run on the host: how many are kept depends on the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from refluid.ops.core.infer import Described, Infer, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.detection.boxes import extra_pixel
from refluid.ops.sequence.nested import without_padding

_COORDINATES = (4, 8, 16, 24, 32)


class Found(NamedTuple):
    """Boxes that were kept: the class, score and place of each."""

    labels: np.ndarray
    scores: np.ndarray
    places: np.ndarray

    def at(self, order: Any) -> Found:
        return Found(*(each[order] for each in self))


# Finds among boxes, [boxes, coordinates], with these scores; returns the places and the scores of those kept.
Search = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _loops() -> Any:
    return import_module("refluid.kernels.host.suppression")  # loads numba: slow


def best_first(scores: np.ndarray, threshold: float, most: int) -> np.ndarray:
    """The places of scores above the threshold, the highest first and no more than ``most``, unless that is -1."""
    places = np.flatnonzero(scores > scores.dtype.type(threshold))
    places = places[np.argsort(-scores[places], kind="stable")]
    return places if most < 0 else places[:most]


def by_class(boxes: np.ndarray, scores: np.ndarray, background: int, search: Search) -> Found:
    """What is found for each class but the background.

    Args:
      boxes: [boxes, coordinates], or [boxes, classes, coordinates] if classes have boxes of their own.
      scores: [classes, boxes].
    """
    found = []
    for label in range(scores.shape[0]):
        if label != background:
            own = boxes if boxes.ndim == 2 else np.ascontiguousarray(boxes[:, label])
            places, points = search(own, np.ascontiguousarray(scores[label]))
            found.append(Found(np.full(len(places), label), points, places))
    return _joined(found, scores.dtype)


def found_by_class(boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, search: Search) -> Found:
    """What is found for each class, among boxes of one class each."""
    found = []
    for label in np.unique(labels):
        (own,) = np.nonzero(labels == label)
        places, points = search(boxes[own], scores[own])
        found.append(Found(np.full(len(places), label), points, own[places]))
    return _joined(found, scores.dtype)


def _joined(found: list[Found], dtype: np.dtype) -> Found:
    nothing = Found(np.zeros(0, np.int64), np.zeros(0, dtype), np.zeros(0, np.int64))
    return Found(*(np.concatenate(each) for each in zip(nothing, *found, strict=True)))


def best_of(found: Found, most: int) -> Found:
    """The ``most`` boxes with the highest scores, class by class; all if it is -1."""
    if most < 0 or len(found.scores) <= most:
        return found
    best = found.at(np.argsort(-found.scores, kind="stable")[:most])
    return best.at(np.argsort(best.labels, kind="stable"))


def _samples(boxes: Any, scores: Any) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Boxes and scores [classes, boxes] of each image, and the number of the first of them."""
    # Copies, because the loops cannot take arrays that are read-only.
    if scores.ndim == 3:
        every = np.array(plain(boxes)), np.array(plain(scores))
        yield from ((b, s, i * len(b)) for i, (b, s) in enumerate(zip(*every, strict=True)))
        return
    if not isinstance(boxes, Ragged) or not boxes.levels:
        raise ValueError("BBoxes must hold a sequence for each image, or Scores must have 3 dims")
    boxes = without_padding(boxes)
    rows, points = np.array(boxes.data), np.array(plain(without_padding(scores)))
    for begin, end in zip(boxes.offsets[-1][:-1], boxes.offsets[-1][1:], strict=True):
        yield rows[begin:end], np.ascontiguousarray(points[begin:end].T), int(begin)


def _described(inputs: Described, **more: Any) -> Described:
    boxes, scores = inputs["BBoxes"][0], inputs["Scores"][0]
    if len(scores.shape) not in (2, 3) or len(boxes.shape) != 3 or boxes.shape[2] not in _COORDINATES:
        raise ValueError(
            "Scores must be [images, classes, boxes] and BBoxes [images, boxes, 4, 8, 16, 24 or 32]; or, as sequences, "
            f"[boxes, classes] and [boxes, classes, 4]. They are {list(scores.shape)} and {list(boxes.shape)}"
        )
    if len(scores.shape) == 2 and boxes.shape[2] != 4:
        raise ValueError(f"boxes of each class must have 4 coordinates, but BBoxes has shape {list(boxes.shape)}")
    # As in real Fluid, the declared number of rows is that of boxes.
    rows = boxes.shape[1] if len(scores.shape) == 3 else boxes.shape[0]
    out = {"Out": [ShapeDtype((rows, boxes.shape[2] + 2), boxes.dtype, lod_level=1)]}
    return {**out, **{slot: [ShapeDtype((rows, 1), np.dtype(dtype), lod_level=1)] for slot, dtype in more.items()}}


def _infer(**more: Any) -> Infer:
    return lambda inputs, attrs: _described(inputs, **more)


_NMS: dict[str, Any] = {
    "inputs": "BBoxes Scores",
    "grad": None,
    "host": True,
    "lod": "aware",
    "finds_rows": True,
}


def detected(images: Sequence[tuple[Found, np.ndarray]], dtype: np.dtype, width: int = 4) -> Ragged:
    """Rows of class, score and box of each image.

    Args:
      images: what was found, and the boxes that the places refer to.
    """
    rows = [np.concatenate([np.stack(found[:2], 1), boxes[found.places]], 1) for found, boxes in images]
    rows = np.concatenate([np.zeros((0, width + 2), dtype), *rows]).astype(dtype)
    counts = [len(found.places) for found, _ in images]
    return Ragged(rows, (np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),), max([1, *counts]))


def _or_nothing(detected: Ragged) -> Ragged:
    """If there is nothing in any image, a single -1 says so."""
    if len(detected.data):
        return detected
    return Ragged(np.full((1, 1), -1, detected.dtype), (np.asarray([0, 1], np.int32),), 1)


def _found(boxes, scores, score_threshold, nms_top_k, keep_top_k, nms_threshold, eta, extra, background):
    """What is found in each image, the boxes that it refers to, and its places among all boxes."""

    def search(own, points):
        order = best_first(points, score_threshold, nms_top_k)
        places = _loops().suppress(own, order, nms_threshold, eta, extra)
        return places, points[places]

    for own, points, first in _samples(boxes, scores):
        found = best_of(by_class(own, points, background, search), keep_top_k)
        if scores.ndim == 2:  # a box for each class; these are in order
            found = found.at(np.lexsort((found.places, found.labels)))
            places = found.places * own.shape[1] + found.labels
            yield found._replace(places=places), own.reshape(-1, 4), places + first * own.shape[1]
        else:
            yield found, own, found.places + first


@op("multiclass_nms", outputs="Out", infer=_infer(), **_NMS)
def multiclass_nms(
    boxes,
    scores,
    *,
    background_label=0,
    score_threshold,
    nms_top_k,
    nms_threshold=0.3,
    nms_eta=1.0,
    keep_top_k,
    normalized=True,
):
    """The best boxes of each image: rows of class, score and coordinates; a single -1 if there are none at all."""
    options = (score_threshold, nms_top_k, keep_top_k, nms_threshold, nms_eta, extra_pixel(normalized))
    found = [each[:2] for each in _found(boxes, scores, *options, background_label)]
    return _or_nothing(detected(found, np.dtype(boxes.dtype), boxes.shape[2]))


@op("multiclass_nms2", outputs="Out Index?", infer=_infer(Index=np.int32), **_NMS)
def multiclass_nms2(
    boxes,
    scores,
    *,
    background_label=0,
    score_threshold,
    nms_top_k,
    nms_threshold=0.3,
    nms_eta=1.0,
    keep_top_k,
    normalized=True,
):
    """`multiclass_nms` that also tells which boxes were kept; no rows if there are none."""
    options = (score_threshold, nms_top_k, keep_top_k, nms_threshold, nms_eta, extra_pixel(normalized))
    found = list(_found(boxes, scores, *options, background_label))
    out = detected([each[:2] for each in found], np.dtype(boxes.dtype), boxes.shape[2])
    return out, out.with_data(_column([places for _, _, places in found]))


def _column(places: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *places]).astype(np.int32)[:, None]


@op("matrix_nms", outputs="Out Index?", infer=_infer(Index=np.int32), **_NMS)
def matrix_nms(
    boxes,
    scores,
    *,
    background_label=0,
    score_threshold,
    post_threshold,
    nms_top_k,
    keep_top_k,
    normalized=True,
    use_gaussian=False,
    gaussian_sigma=2.0,
):
    """Boxes of each image, the best first, whose scores decay with overlaps instead of boxes being dropped at once."""
    extra, sigma = extra_pixel(normalized), gaussian_sigma if use_gaussian else None

    def search(own, points):
        order = best_first(points, score_threshold, nms_top_k)
        decayed = _loops().decay(own, points, order, sigma, extra)
        left = decayed > decayed.dtype.type(post_threshold)
        return order[left], decayed[left]

    images, places = [], []
    for own, points, first in _samples(boxes, scores):
        found = by_class(own, points, background_label, search)
        order = np.argsort(-found.scores, kind="stable")
        found = found.at(order if keep_top_k < 0 else order[:keep_top_k])
        images.append((found, own))
        places.append(found.places + first)
    out = detected(images, np.dtype(boxes.dtype), boxes.shape[2])
    return out, out.with_data(_column(places))


@op("locality_aware_nms", outputs="Out", infer=_infer(), **_NMS)
def locality_aware_nms(
    boxes,
    scores,
    *,
    background_label=-1,
    score_threshold,
    nms_top_k,
    nms_threshold=0.3,
    nms_eta=1.0,
    keep_top_k,
    normalized=True,
):
    """`multiclass_nms` that first merges neighbouring boxes that overlap; made for the many boxes of EAST."""
    extra, images = extra_pixel(normalized), []
    for own, points, _ in _samples(boxes, scores):
        # Real Fluid merges in place: boxes that one class merges, the next class finds merged.
        own = own.copy()

        def search(own, points):
            points = points.copy()
            stays = _loops().merge(own, points, nms_threshold, extra)
            order = best_first(np.where(stays, points, -np.inf).astype(points.dtype), score_threshold, nms_top_k)
            places = _loops().suppress(own, order, nms_threshold, nms_eta, extra)
            return places, points[places]

        images.append((best_of(by_class(own, points, background_label, search), keep_top_k), own))
    return _or_nothing(detected(images, np.dtype(boxes.dtype), boxes.shape[2]))
