"""Weights as integers."""

import numpy as np

from refluid.compression.weights import as_integers, scale_of

WEIGHT = np.array([[1.0, -0.5], [0.0, 0.0], [4.0, 0.1]], "float32")


def test_a_weight_is_scaled_as_a_whole_or_by_channel():
    assert scale_of(WEIGHT) == 4
    assert scale_of(WEIGHT, by_channel=True).tolist() == [1, 0, 4]
    assert as_integers(WEIGHT, 4.0, bits=8).tolist() == [[32, -16], [0, 0], [127, 3]]


def test_a_channel_of_zeros_stays_zero():
    integers = as_integers(WEIGHT, scale_of(WEIGHT, by_channel=True), bits=4)
    assert integers.tolist() == [[7, -4], [0, 0], [7, 0]]
    assert integers.dtype == np.float32


def test_values_beyond_a_scale_count_as_the_scale():
    assert as_integers(WEIGHT, 2.0, bits=8).max() == 127
