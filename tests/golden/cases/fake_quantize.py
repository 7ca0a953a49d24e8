"""Quantisation in floating point."""

import numpy as np

from golden.case import Case, f32

CASES = []

for bits in (8, 4, 16):
    CASES.append(Case("fake_quantize_abs_max", {"X": f32(3, 5, salt=bits)}, "Out OutScale", {"bit_length": bits}))
CASES += [
    Case("fake_quantize_abs_max", {"X": f32(2, 3, 2, 2, high=7.0)}, "Out OutScale", name="image"),
    Case("fake_quantize_abs_max", {"X": np.zeros((2, 3), "float32")}, "Out OutScale", name="zeros"),
    Case("fake_quantize_abs_max", {"X": f32(6) * 1e-12}, "Out OutScale", name="small"),
    Case("fake_channel_wise_quantize_abs_max", {"X": f32(4, 3, 2, 2)}, "Out OutScale"),
    Case("fake_channel_wise_quantize_abs_max", {"X": f32(3, 5)}, "Out OutScale", {"bit_length": 5}, name="matrix"),
    Case(
        "fake_channel_wise_quantize_abs_max",
        {"X": np.stack([f32(3, 2), np.zeros((3, 2), "float32")])},
        "Out OutScale",
        name="a_channel_of_zeros",
    ),
    Case(
        "fake_dequantize_max_abs",
        {"X": np.round(f32(3, 4) * 127), "Scale": f32(1, low=0.5)},
        attrs={"max_range": 127.0},
    ),
    Case(
        "fake_dequantize_max_abs",
        {"X": np.round(f32(2, 3, 2, 2) * 127), "Scale": f32(1, low=0.5)},
        attrs={"max_range": 127.0 * 127},
        name="of_a_product",
    ),
    Case("fake_channel_wise_dequantize_max_abs", {"X": np.round(f32(3, 4) * 127), "Scales": [f32(3, low=0.1)]}),
    Case(
        "fake_channel_wise_dequantize_max_abs",
        {"X": np.round(f32(3, 4, 2, 2) * 7), "Scales": [f32(3, low=0.1)]},
        attrs={"quant_bits": [4]},
        name="image",
    ),
    Case(
        "fake_channel_wise_dequantize_max_abs",
        {"X": np.round(f32(2, 3, 2, 2) * 999), "Scales": [f32(3, low=0.1), f32(1, low=0.3, salt=1)]},
        attrs={"quant_bits": [8, 6]},
        name="of_a_product",
    ),
    Case(
        "fake_channel_wise_dequantize_max_abs",
        {"X": np.round(f32(2, 3) * 999), "Scales": [f32(3, low=0.1), f32(1, low=0.3, salt=1)]},
        attrs={"quant_bits": [8, 8]},
        name="of_a_matrix_product",
    ),
]


def range_case(name, iteration, last, window, **attrs):
    """A batch whose largest magnitude is about 1, after a window of others."""
    trained = not attrs.get("is_test")
    inputs = {"X": f32(4, 3), "InScale": np.array([last], "float32"), "Iter": np.array([iteration], "int64")}
    outputs, inplace = "Out OutScale", {"OutScale": "InScale"}
    if trained:
        inputs["InScales"] = np.array(window, "float32")
        outputs, inplace = "Out OutScale OutScales", {"OutScale": "InScale", "OutScales": "InScales"}
    attrs = dict(attrs, window_size=len(window))
    CASES.append(Case("fake_quantize_range_abs_max", inputs, outputs, attrs, inplace=inplace, name=name))


range_case("first", 0, 0.001, [0, 0, 0])
range_case("larger", 1, 0.5, [0.5, 0, 0])
range_case("smaller", 2, 3.0, [0.5, 3.0, 0], bit_length=5)
range_case("the_largest_leaves", 4, 3.0, [0.5, 3.0, 2.0])
range_case("the_largest_leaves_early", 1, 3.0, [2.0, 3.0, 9.0])
range_case("another_leaves", 6, 3.0, [0.5, 3.0, 2.0])
range_case("test", 6, 0.75, [0.5, 3.0, 2.0], is_test=True)


def average_case(op, name, **attrs):
    inputs = {"X": f32(4, 5, salt=name), "InAccum": f32(1, low=0.5), "InState": f32(1, low=0.8)}
    inputs["InScale"] = np.array([0.7], "float32")  # moving_average_abs_max_scale has no such slot, and ignores it
    inplace = {"OutScale": "InScale", "OutAccum": "InAccum", "OutState": "InState"}
    outputs = "Out OutScale OutState OutAccum"
    CASES.append(Case(op, inputs, outputs, attrs, inplace=inplace, name=name))


for op in (
    "fake_quantize_moving_average_abs_max",
    "fake_quantize_dequantize_moving_average_abs_max",
    "moving_average_abs_max_scale",
):
    bits = {} if op == "moving_average_abs_max_scale" else {"bit_length": 5}
    average_case(op, "default")
    average_case(op, "slower", moving_rate=0.99, **bits)
    average_case(op, "test", is_test=True)
