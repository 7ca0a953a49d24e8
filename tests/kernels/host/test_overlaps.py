"""Overlaps of polygons."""

from __future__ import annotations

import numpy as np
import pytest

from refluid.kernels.host.overlaps import polygon_common, polygon_overlap

SQUARE = [0, 0, 4, 0, 4, 4, 0, 4]
ARROW = [0, 0, 4, 0, 4, 4, 3, 1]  # not convex
CLOCKWISE = [1, 5, 5, 5, 5, 1, 1, 1]


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (SQUARE, SQUARE, 16.0),
        (SQUARE, CLOCKWISE, 9.0),
        (SQUARE, [5, 5, 6, 5, 6, 6, 5, 6], 0.0),
        (SQUARE, [2, -2, 6, 2, 2, 6, -2, 2], 16.0),
        (SQUARE, [0, 0, 8, 0, 0, 8], 16.0),
        (ARROW, ARROW, 4.0),
        (ARROW, [0, 1, 4, 1, 4, 9, 0, 9], 1.5),
    ],
)
def test_the_common_area_of_polygons(a, b, common):
    for first, second in ((a, b), (b, a)):
        assert polygon_common(np.float32(first), np.float32(second)) == pytest.approx(common)


def test_polygons_without_area_do_not_overlap():
    point = np.ones(8, "float32")
    assert polygon_overlap(point, point) == 0
    assert polygon_overlap(np.float32(SQUARE), np.float32(CLOCKWISE)) == pytest.approx(9 / 23)
