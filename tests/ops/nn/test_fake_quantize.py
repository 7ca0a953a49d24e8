"""What golden cases cannot show: errors, and halves."""

import numpy as np
import pytest

from refluid.ops.nn.fake_quantize import (
    fake_channel_wise_dequantize_max_abs,
    fake_quantize_abs_max,
    fake_quantize_moving_average_abs_max,
    fake_quantize_range_abs_max,
)


def test_exact_halves_are_rounded_to_even():
    quantised, scale = fake_quantize_abs_max(np.array([127, 0.5, 1.5, -2.5], "float32"))
    assert (quantised.tolist(), scale.tolist()) == ([127, 0, 2, -2], [127])


def test_a_window_of_scales_starts_empty():
    x, scale = np.array([0.5, -2.0], "float32"), np.array([0.001], "float32")
    _, out_scale, scales = fake_quantize_range_abs_max(x, scale, np.array([1]), window_size=3)
    assert (out_scale.tolist(), scales.tolist()) == ([2], [0, 2, 0])


def test_training_without_state_is_an_error():
    x, scale = np.ones(3, "float32"), np.ones(1, "float32")
    with pytest.raises(ValueError, match="needs InAccum and InState"):
        fake_quantize_moving_average_abs_max(x, scale)
    with pytest.raises(ValueError, match="needs Iter, the number of the batch"):
        fake_quantize_range_abs_max(x, scale)


def test_every_scale_needs_its_bits():
    scales = [np.ones(3, "float32"), np.ones(1, "float32")]
    with pytest.raises(ValueError, match=r"bits of each of the 2 Scales, not \[8\]"):
        fake_channel_wise_dequantize_max_abs(np.ones((2, 3), "float32"), scales, quant_bits=[8])
