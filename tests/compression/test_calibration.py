"""Where activations are clipped. tests/golden/test_quantized.py compares with real Fluid."""

import numpy as np

from refluid.compression.calibration import entropy_threshold, largest_threshold


def test_nothing_is_clipped_by_the_largest_magnitude():
    assert largest_threshold([np.array([1.0, -3.0]), np.array([2.0])]) == 3


def test_outliers_are_clipped_by_entropy():
    values = np.concatenate([np.random.RandomState(0).uniform(-5, 5, 5000), [9.0]])
    assert 4.5 < entropy_threshold([values]) < 6


def test_values_far_from_zero_are_not_clipped_away():
    assert entropy_threshold([np.full(10, 2.0)]) >= 2
    assert entropy_threshold([np.linspace(5, 6, 1000)]) > 5.4
