"""Frozen programs multiply integers. tests/golden/test_quantized.py compares with real Fluid."""

import pytest

import paddle.fluid as fluid
from refluid.transpiler.quantization.fake_ops import Scheme
from refluid.transpiler.quantization.freezing import Freeze, NameForMobile, StoreAsInt8, Weight, weights_of
from refluid.transpiler.quantization.training import QuantizeInputs

WHOLE = Scheme("abs_max")


@pytest.fixture
def rounding():
    image = fluid.layers.data("image", [2, 4, 4])
    fluid.layers.relu(fluid.layers.conv2d(image, 3, 3, bias_attr=False))
    per_channel = Scheme("channel_wise_abs_max")
    return QuantizeInputs(("conv2d",), per_channel, WHOLE).apply(fluid.default_main_program())[0]


def test_weights_are_found_with_their_scales(rounding):
    assert weights_of(rounding) == [Weight("conv2d_0.w_0", "conv2d_0.w_0.scale", by_channel=True)]


def test_a_frozen_program_scales_products_back(rounding):
    frozen, channels = Freeze({"conv2d_0.w_0": [0.1, 0.2, 0.3]}, ("conv2d",), WHOLE, WHOLE).apply(rounding)
    assert list(channels.values()) == [[0.1, 0.2, 0.3]]
    (name,) = channels
    quantise, multiply, scale_back, relu = frozen.global_block().ops
    assert quantise.type == "fake_quantize_abs_max"
    assert (multiply.input("Filter"), multiply.input("Input")) == (["conv2d_0.w_0"], ["image.quantized"])
    assert scale_back.input("Scales") == [name, "image.scale"]
    assert relu.input("X") == scale_back.output("Out") == ["conv2d_0.tmp_0.dequantized"]
    assert not frozen.global_block().has_var("conv2d_0.w_0.quantized")


def test_one_scale_becomes_an_attribute(rounding):
    frozen, channels = Freeze({"conv2d_0.w_0": 0.5}, ("conv2d",), Scheme("abs_max", 4), WHOLE).apply(rounding)
    assert channels == {}
    assert frozen.global_block().ops[2].attr("max_range") == 7 * 127 / 0.5


def test_int8_weights_have_variables_of_their_own(rounding):
    frozen, _ = Freeze({"conv2d_0.w_0": 0.5}, ("conv2d",), WHOLE, WHOLE).apply(rounding)
    stored, names = StoreAsInt8(("conv2d",)).apply(frozen)
    assert names == {"conv2d_0.w_0": "conv2d_0.w_0.int8"}
    assert stored.global_block().var("conv2d_0.w_0.int8").dtype == fluid.core.VarDesc.VarType.INT8
    assert not stored.global_block().has_var("conv2d_0.w_0")


def test_phones_have_other_names_for_the_operators(rounding):
    frozen, _ = Freeze({"conv2d_0.w_0": 0.5}, ("conv2d",), WHOLE, WHOLE).apply(rounding)
    types = [op.type for op in NameForMobile().apply(frozen).global_block().ops]
    assert types == ["quantize", "conv2d", "dequantize", "relu"]
