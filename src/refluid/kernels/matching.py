"""Greedy matching of the rows and columns of a matrix that are closest to each other, image by image.

Every row remembers its closest free column, so that a match makes only those rows search again whose column it took.
Threads share the images.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import argument, integers, result
from refluid.kernels.products import ZERO, fast, fill

_WORTH_A_THREAD = 1 << 16  # elements of the matrix
_LEAST, _NONE = np.float32(1e-6), np.float32(-1)


@fast
def _closest(row, found):
    """The closest column that has no match, and how close it is; of equal ones the first."""
    column, best = -1, ZERO
    for c in range(row.shape[0]):
        if row[c] > best and row[c] >= _LEAST and found[c] < 0:
            column, best = c, row[c]
    return column, best


@fast
def _match_image(distance, begin, end, threshold, found, close):
    fill(found, _NONE)
    fill(close, ZERO)
    rows, columns = end - begin, distance.shape[1]
    column, best = np.empty(rows, np.int64), np.empty(rows, np.float32)
    for r in range(rows):
        column[r], best[r] = _closest(distance[begin + r], found)
    for _ in range(min(rows, columns)):
        row = -1
        for r in range(rows):
            if column[r] >= 0 and (
                row < 0 or best[r] > best[row] or (best[r] == best[row] and column[r] < column[row])
            ):
                row = r
        if row < 0:
            break
        taken = column[row]
        found[taken], close[taken] = np.float32(row), best[row]
        column[row] = -1
        for r in range(rows):
            if column[r] == taken:
                column[r], best[r] = _closest(distance[begin + r], found)
    _add_near(distance, begin, end, threshold, found, close)


@fast
def _add_near(distance, begin, end, threshold, found, close):
    """Matches columns that are left with their closest rows."""
    if threshold == np.inf:
        return
    best, nearest = np.zeros(distance.shape[1], np.float32), np.full(distance.shape[1], _NONE, np.float32)
    for r in range(begin, end):
        row, number = distance[r], np.float32(r - begin)
        for c in range(row.shape[0]):
            closer = row[c] > best[c]
            nearest[c] = number if closer else nearest[c]
            best[c] = row[c] if closer else best[c]
    for c in range(found.shape[0]):
        if found[c] < 0 and nearest[c] >= 0 and best[c] >= threshold:
            found[c], close[c] = nearest[c], best[c]


def _work(frame, part, parts):
    offsets, distance, threshold = integers(frame, 0), argument(frame, 1), argument(frame, 2)
    found, close = result(frame, 0), result(frame, 1)
    for image in range(part, found.shape[0], parts):
        end = min(max(offsets[image + 1], 0), distance.shape[0])
        begin = min(max(offsets[image], 0), end)
        _match_image(distance, begin, end, threshold[0, 0], found[image], close[image])


_kernel = Kernel("matching", _work)


def match(distance: Any, offsets: Any, longest: int, threshold: float) -> tuple[Any, Any]:
    """The row of each image that each column is matched with, or -1, and how close they are: [images, columns] both.

    Args:
      distance: [rows, columns].
      offsets: where the rows of each image begin and the last ones end.
      threshold: how close columns that are left must be to their closest row to get it.
    """
    shape = (offsets.shape[0] - 1, distance.shape[1])
    parts = max(1, min(shape[0], distance.size // _WORTH_A_THREAD))
    arguments = (offsets.astype(np.int64), distance, np.full((1, 1), threshold, np.float32))
    found, close = _kernel(arguments, [shape, shape], parts)
    return found, close
