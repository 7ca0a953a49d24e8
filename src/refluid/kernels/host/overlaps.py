"""The intersection of two boxes, or of two polygons, over their union."""

from __future__ import annotations

import numpy as np
from numba import njit  # pyright: ignore[reportPrivateImportUsage]

from refluid.kernels.host.compiled import part

_MOST_CORNERS = 7  # of the intersection of two triangles, and one to spare


@part
def box_area(box, extra):
    """The area of a box whose sides are longer than the difference of its coordinates by ``extra``."""
    width, height = box[2] - box[0], box[3] - box[1]
    return box.dtype.type(0) if width < 0 or height < 0 else (width + extra) * (height + extra)


@part
def box_overlap(a, b, area_a, area_b, extra):
    """The overlap of two boxes whose areas are known."""
    if b[0] > a[2] or b[2] < a[0] or b[1] > a[3] or b[3] < a[1]:
        return a.dtype.type(0)
    common = (min(a[2], b[2]) - max(a[0], b[0]) + extra) * (min(a[3], b[3]) - max(a[1], b[1]) + extra)
    return common / (area_a + area_b - common)


@njit(nogil=True, error_model="numpy")
def _clip(corners, count, ax, ay, bx, by, kept):
    """Keeps what of a convex polygon is to the left of the line from a to b; returns its number of corners."""
    found = 0
    for i in range(count):
        x, y = corners[i]
        next_x, next_y = corners[(i + 1) % count]
        side = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        next_side = (bx - ax) * (next_y - ay) - (by - ay) * (next_x - ax)
        if side >= 0:
            kept[found, 0], kept[found, 1] = x, y
            found += 1
        if side * next_side < 0:
            share = side / (side - next_side)
            kept[found, 0], kept[found, 1] = x + share * (next_x - x), y + share * (next_y - y)
            found += 1
    for i in range(found):
        corners[i, 0], corners[i, 1] = kept[i, 0], kept[i, 1]
    return found


@njit(nogil=True, error_model="numpy")
def _triangle(polygon, i, corners):
    """Writes the triangle of the first corner and edge i, counterclockwise; returns 1, or -1 if it was clockwise."""
    x, y = np.float64(polygon[0]), np.float64(polygon[1])
    ax, ay = np.float64(polygon[2 * i]), np.float64(polygon[2 * i + 1])
    bx, by = np.float64(polygon[2 * i + 2]), np.float64(polygon[2 * i + 3])
    turns_left = (ax - x) * (by - y) - (ay - y) * (bx - x) >= 0
    corners[0, 0], corners[0, 1] = x, y
    first, second = (1, 2) if turns_left else (2, 1)
    corners[first, 0], corners[first, 1] = ax, ay
    corners[second, 0], corners[second, 1] = bx, by
    return 1.0 if turns_left else -1.0


@njit(nogil=True, error_model="numpy")
def _area(corners, count):
    total = 0.0
    for i in range(count):
        j = (i + 1) % count
        total += corners[i, 0] * corners[j, 1] - corners[j, 0] * corners[i, 1]
    return total / 2


@njit(nogil=True, error_model="numpy")
def polygon_common(a, b):
    """The area that two simple polygons, x and y of each corner one after the other, have in common.

    A polygon is the sum of the triangles of its first corner and each edge, where those that turn the other way are
    subtracted; so the common area is the sum over all pairs of triangles.
    """
    corners, kept, other = np.empty((_MOST_CORNERS, 2)), np.empty((_MOST_CORNERS, 2)), np.empty((3, 2))
    total = 0.0
    for i in range(1, a.shape[0] // 2 - 1):
        for j in range(1, b.shape[0] // 2 - 1):
            sign = _triangle(a, i, corners) * _triangle(b, j, other)
            count = 3
            for k in range(3):
                n = (k + 1) % 3
                count = _clip(corners, count, other[k, 0], other[k, 1], other[n, 0], other[n, 1], kept)
            total += sign * _area(corners, count)
    return abs(total)


@njit(nogil=True, error_model="numpy")
def polygon_overlap(a, b):
    """The overlap of two simple polygons."""
    common = polygon_common(a, b)
    union = polygon_common(a, a) + polygon_common(b, b) - common
    return a.dtype.type(common / union) if union > 0 else a.dtype.type(0)
