"""Polygons drawn as masks, in the way of the COCO dataset.

A polygon is walked along in steps of a fifth of a pixel. Wherever that crosses the middle of a column of pixels, the
mask changes between outside and inside, from the pixel below the crossing on.
"""

from __future__ import annotations

import numpy as np

from refluid.kernels.host.compiled import kernel, part

_FINER = 5  # steps in a pixel


@part
def _cross(changes, size, x, y, before_x, before_y):
    """Counts a change if a step along the polygon crosses the middle of a column."""
    if x == before_x:
        return
    middle = (min(x, before_x) + 0.5) / _FINER - 0.5
    if np.floor(middle) != middle or middle < 0 or middle > size - 1:
        return
    place = (min(y, before_y) + 0.5) / _FINER - 0.5
    row = np.int64(np.ceil(min(max(place, 0.0), np.float64(size))))
    changes[np.int64(middle) * size + row] += 1


@part
def _walk(corners, changes, size):
    """Walks along the polygon once: along each side step by step in its longer direction, rounded in the other."""
    count = corners.shape[0]
    places = np.empty((count + 1, 2), np.int64)
    for i in range(count + 1):
        for c in range(2):
            places[i, c] = np.int64(_FINER * np.float64(corners[i % count, c]) + 0.5)
    before_x, before_y, is_first = 0, 0, True
    for i in range(count):
        x, y, end_x, end_y = places[i, 0], places[i, 1], places[i + 1, 0], places[i + 1, 1]
        wide, high = abs(end_x - x), abs(end_y - y)
        steps, is_wide = max(wide, high), wide >= high
        turned = x > end_x if is_wide else y > end_y
        if turned:
            x, y, end_x, end_y = end_x, end_y, x, y
        slope = 0.0 if steps == 0 else ((end_y - y) if is_wide else (end_x - x)) / steps
        for step in range(steps + 1):
            along = steps - step if turned else step
            if is_wide:
                new_x, new_y = x + along, np.int64(y + slope * along + 0.5)
            else:
                new_x, new_y = np.int64(x + slope * along + 0.5), y + along
            if not is_first:
                _cross(changes, size, new_x, new_y, before_x, before_y)
            before_x, before_y, is_first = new_x, new_y, False


@kernel("int32[:](float32[:,::1], int64[::1], float32[::1], int64)")
def draw(corners, ends, box, size):
    """The pixels of a box, ``size`` by ``size`` of them row by row, that are inside of any polygon: 1, others 0.

    Args:
      corners: of all polygons, one after the other.
      ends: where the corners of each polygon end.
    """
    mask, begin = np.zeros(size * size, np.int32), 0
    width, height = max(box[2] - box[0], np.float32(1)), max(box[3] - box[1], np.float32(1))
    for end in ends:
        scaled = np.empty((end - begin, 2), np.float32)
        for i in range(end - begin):
            scaled[i, 0] = (corners[begin + i, 0] - box[0]) * np.float32(size) / width
            scaled[i, 1] = (corners[begin + i, 1] - box[1]) * np.float32(size) / height
        changes = np.zeros(size * size + 1, np.int64)
        _walk(scaled, changes, size)
        count = 0
        for place in range(size * size):  # column by column; a change lasts until the next one
            count += changes[place]
            if count % 2:
                mask[place % size * size + place // size] = 1
        begin = end
    return mask
