"""Non-maximum suppression: of boxes that overlap, the one with the highest score is kept.

Boxes have 4 coordinates, or are polygons with more. ``extra`` is how much longer sides are than the difference of
their coordinates, 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refluid.kernels.host.compiled import kernel, part
from refluid.kernels.host.overlaps import box_area, box_overlap, polygon_overlap


@part
def _overlap(a, b, extra):
    if a.shape[0] == 4:
        return box_overlap(a, b, box_area(a, extra), box_area(b, extra), extra)
    return polygon_overlap(a, b)


def _suppress(boxes, order, threshold, eta, extra):
    kept, count = np.empty(order.shape[0], np.int64), 0
    near, areas = np.empty((order.shape[0], boxes.shape[1]), boxes.dtype), np.empty(order.shape[0], boxes.dtype)
    for i in order:
        box, is_kept = boxes[i], True
        area = box_area(box, extra) if box.shape[0] == 4 else extra
        for k in range(count):
            if box.shape[0] == 4:
                overlap = box_overlap(box, near[k], area, areas[k], extra)
            else:
                overlap = polygon_overlap(box, near[k])
            if not overlap <= threshold:
                is_kept = False
                break
        if is_kept:
            near[count], areas[count], kept[count] = box, area, i
            count += 1
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return kept[:count]


def _decay(boxes, scores, order, gaussian, sigma, extra):
    count, one = order.shape[0], boxes.dtype.type(1)
    decayed, most = np.empty(count, boxes.dtype), np.zeros(count, boxes.dtype)
    overlaps = np.empty(count, boxes.dtype)
    for i in range(count):
        for j in range(i):
            overlaps[j] = _overlap(boxes[order[i]], boxes[order[j]], extra)
            most[i] = max(most[i], overlaps[j])
        factor = one
        for j in range(i):
            if gaussian:
                step = np.exp((most[j] * most[j] - overlaps[j] * overlaps[j]) * sigma)
            else:
                step = (one - overlaps[j]) / (one - most[j])
            factor = min(factor, step)
        decayed[i] = factor * scores[order[i]]
    return decayed


def _merge(boxes, scores, threshold, extra):
    stays, last = np.zeros(boxes.shape[0], np.bool_), -1
    for i in range(boxes.shape[0]):
        if last >= 0 and _overlap(boxes[i], boxes[last], extra) > threshold:
            total = scores[i] + scores[last]
            for c in range(boxes.shape[1]):
                boxes[last, c] = (boxes[i, c] * scores[i] + boxes[last, c] * scores[last]) / total
            scores[last] = total
        else:
            last = i
            stays[i] = True
    return stays


def _for_each_dtype(signature: str, function: Callable[..., Any]) -> dict[np.dtype, Any]:
    """The function compiled for each dtype, F in the signature."""
    return {np.dtype(name): kernel(signature.replace("F", name))(function) for name in ("float32", "float64")}


_SUPPRESS = _for_each_dtype("int64[:](F[:,::1], int64[::1], F, F, F)", _suppress)
_DECAY = _for_each_dtype("F[:](F[:,::1], F[::1], int64[::1], boolean, F, F)", _decay)
_MERGE = _for_each_dtype("boolean[:](F[:,::1], F[::1], F, F)", _merge)


def suppress(boxes: np.ndarray, order: np.ndarray, threshold: float, eta: float, extra: int) -> np.ndarray:
    """Which boxes are kept: those that overlap with none that is kept before by more than the threshold.

    Args:
      order: int64: the boxes to look at, best first.
      eta: if less than 1, every kept box multiplies the threshold by it, as long as that is above 0.5.
    """
    make = boxes.dtype.type
    return _SUPPRESS[boxes.dtype](boxes, order, make(threshold), make(eta), make(extra))


def decay(boxes: np.ndarray, scores: np.ndarray, order: np.ndarray, sigma: float | None, extra: int) -> np.ndarray:
    """The scores of boxes in order, each less the more it overlaps with better ones; by a Gaussian if ``sigma`` is."""
    make = boxes.dtype.type
    return _DECAY[boxes.dtype](boxes, scores, order, sigma is not None, make(sigma or 0), make(extra))


def merge(boxes: np.ndarray, scores: np.ndarray, threshold: float, extra: int) -> np.ndarray:
    """Merges neighbours that overlap, in place, weighted by their scores, which add up; returns which are left."""
    make = boxes.dtype.type
    return _MERGE[boxes.dtype](boxes, scores, make(threshold), make(extra))
