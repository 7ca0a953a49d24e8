"""Maxima over bins of regions of images, and where they are.

Images are matrices with a row per pixel and a column per channel. A kernel finds the maxima of a row of pixels first,
which all bins that contain the row share. Threads share the regions and, in the backward pass, the channels.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import MODE, argument, attribute, integers, result
from refluid.kernels.products import ZERO, columns_of_part, fast, fill

LARGEST_IMAGE = 1 << 24  # pixels; places are float32
_WORTH_A_THREAD = 1 << 16  # elements of all bins
_FIND, _SPREAD = range(2)
_LOWEST, _NOWHERE = np.float32(np.finfo(np.float32).min), np.float32(-1)
_REAL, _HEIGHT, _WIDTH = -3, -2, -1  # what the images of the regions are followed by


# One loop for places and one for maxima, which reads everything before it compares: otherwise they are not vectorised.
@fast
def _look(best, places, x, at):
    """Takes what is larger in x, a pixel; of equal elements the first stays."""
    for c in range(best.shape[0]):
        new, old, place = x[c], best[c], places[c]
        places[c] = at if new > old else place
    _larger(best, x)


@fast
def _take(best, places, x, x_places):
    """Takes what is larger in x, maxima of a row."""
    for c in range(best.shape[0]):
        new, old, new_place, place = x[c], best[c], x_places[c], places[c]
        places[c] = new_place if new > old else place
    _larger(best, x)


@fast
def _larger(best, x):
    for c in range(best.shape[0]):
        new, old = x[c], best[c]
        best[c] = new if new > old else old


@fast
def _begin(out, places, first, rows, columns):
    """Fills the bins of a region with what they have before anything is found; returns the rows that they cover."""
    wide, top, bottom = columns.shape[0] // 2, np.int64(1) << 40, 0
    for p in range(rows.shape[0] // 2):
        top, bottom = min(top, rows[2 * p]), max(bottom, rows[2 * p + 1])
        for q in range(wide):
            is_empty = rows[2 * p] >= rows[2 * p + 1] or columns[2 * q] >= columns[2 * q + 1]
            fill(out[first + p * wide + q], ZERO if is_empty else _LOWEST)
            fill(places[first + p * wide + q], _NOWHERE)
    return top, bottom


@fast
def _find(images, x, rows, columns, out, places, part, parts):
    """The bins of a part's regions; those that are padding get the bins of one that is not."""
    count, real, height, width = images.shape[0] - 3, images[_REAL], images[_HEIGHT], images[_WIDTH]
    high, wide = rows.shape[0] // (2 * count), columns.shape[0] // (2 * count)
    row, row_places = np.empty((wide, x.shape[1]), np.float32), np.empty((wide, x.shape[1]), np.float32)
    source = -1
    for r in range(count * part // parts, count * (part + 1) // parts):
        first = r * high * wide
        if r >= real and source >= 0:
            for i in range(high * wide):
                out[first + i], places[first + i] = out[source + i], places[source + i]
            continue
        source = first
        down, across = rows[2 * r * high : 2 * (r + 1) * high], columns[2 * r * wide : 2 * (r + 1) * wide]
        top, bottom = _begin(out, places, first, down, across)
        for y in range(max(top, 0), min(bottom, height)):
            for q in range(wide):
                fill(row[q], _LOWEST)
                fill(row_places[q], _NOWHERE)
                for i in range(max(across[2 * q], 0), min(across[2 * q + 1], width)):
                    place = y * width + i
                    _look(row[q], row_places[q], x[images[r] * height * width + place], np.float32(place))
            for p in range(high):
                if down[2 * p] <= y < down[2 * p + 1]:
                    for q in range(wide):
                        _take(out[first + p * wide + q], places[first + p * wide + q], row[q], row_places[q])


@fast
def _spread(images, gradient, places, out, part, parts):
    """Adds the gradient of each maximum where it was found."""
    begin, end = columns_of_part(out.shape[1], part, parts)
    for i in range(out.shape[0]):
        fill(out[i, begin:end], ZERO)
    count, real, pixels = images.shape[0] - 3, images[_REAL], images[_HEIGHT] * images[_WIDTH]
    bins = gradient.shape[0] // count
    for r in range(min(real, count)):
        first = images[r] * pixels
        for i in range(r * bins, (r + 1) * bins):
            for c in range(begin, end):
                if places[i, c] >= 0:
                    out[first + np.int64(places[i, c]), c] += gradient[i, c]


def _work(frame, part, parts):
    images, rows, columns = integers(frame, 0), integers(frame, 1), integers(frame, 2)
    if attribute(frame, MODE) == _FIND:
        _find(images, argument(frame, 3), rows, columns, result(frame, 0), result(frame, 1), part, parts)
    else:
        _spread(images, argument(frame, 3), argument(frame, 4), result(frame, 0), part, parts)


_kernel = Kernel("region_max", _work)


@jax.custom_vjp
def find(images: Any, rows: Any, columns: Any, x: Any) -> tuple[Any, Any]:
    """The largest element of each bin, and the number of its pixel in the image; 0 and -1 for empty bins.

    Args:
      images: int64: the image of each region, then how many regions are real, and height and width of the images.
        Regions that are not real get the bins of one that is, and no gradient.
      rows, columns: int64: for each region and row (or column) of its bins, the first one of the image that belongs to
        it, and one after the last.
      x: the images, [images * height * width, channels].

    Returns:
      two arrays [regions * rows of bins * columns of bins, channels].
    """
    count = images.shape[0] - 3
    shape = (rows.shape[0] * columns.shape[0] // (4 * count), x.shape[1])
    found, places = _kernel((images, rows, columns, x), [shape, shape], _parts(shape), _FIND)
    return found, places


def _parts(shape: tuple[int, int]) -> int:
    return max(1, shape[0] * shape[1] // _WORTH_A_THREAD)


def _forward(images, rows, columns, x):
    found, places = find(images, rows, columns, x)
    return (found, places), (images, rows, columns, places, x.shape[0])


def _backward(saved, gradients):
    images, rows, columns, places, pixels = saved
    shape = (pixels, places.shape[1])
    arguments = (images, rows, columns, gradients[0], places)
    return None, None, None, _kernel(arguments, [shape], _parts(places.shape), _SPREAD)[0]


find.defvjp(_forward, _backward)
