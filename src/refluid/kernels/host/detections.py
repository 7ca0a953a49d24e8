"""Which detections find an object."""

from __future__ import annotations

import numpy as np

from refluid.kernels.host.compiled import kernel
from refluid.kernels.host.overlaps import box_area, box_overlap

IGNORED, MISSED, FOUND = -1, 0, 1


@kernel("int64[:](float32[:,::1], float32[:,::1], boolean[::1], float32)")
def outcomes(boxes, truth, counts, threshold):
    """Whether each box, best first, finds an object that no better one has found.

    Args:
      boxes, truth: normalized boxes of one class in one image.
      counts: which objects count; a box whose nearest object does not is ignored.
      threshold: how much a box must overlap with its nearest object.
    """
    found, taken = np.empty(boxes.shape[0], np.int64), np.zeros(truth.shape[0], np.bool_)
    zero, one = np.float32(0), np.float32(1)
    box = np.empty(4, np.float32)
    for i in range(boxes.shape[0]):
        for c in range(4):
            box[c] = max(min(boxes[i, c], one), zero)
        best, nearest = np.float32(-1), 0
        for j in range(truth.shape[0]):
            overlap = box_overlap(box, truth[j], box_area(box, zero), box_area(truth[j], zero), zero)
            if overlap > best:
                best, nearest = overlap, j
        if not best > threshold:
            found[i] = MISSED
        elif not counts[nearest]:
            found[i] = IGNORED
        else:
            found[i] = MISSED if taken[nearest] else FOUND
            taken[nearest] = True
    return found
