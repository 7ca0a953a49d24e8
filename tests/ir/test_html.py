"""What notebooks show of programs, blocks and variables."""

import xml.etree.ElementTree as ET

import paddle.fluid as fluid
from paddle.utils.plot import Ploter


def model():
    x = fluid.layers.data("x", [3])
    frozen = fluid.ParamAttr(name="a<b", trainable=False)
    return fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(x, 4), 2, param_attr=frozen, bias_attr=False))


def text_of(html):
    return " ".join(" ".join(ET.fromstring(html).itertext()).split())


def test_a_program_shows_counts_and_unfolds_parameters_and_operators():
    model()
    text = text_of(fluid.default_main_program()._repr_html_())
    assert text.startswith("Program of 4 operators, 3 parameters (24 elements), feeds x")
    assert "a<b fp32[4, 2] frozen" in text
    assert "operators: 2 mul, 1 elementwise_add, 1 mean" in text
    assert "fc_0.tmp_0 mul x , fc_0.w_0" in text


def test_a_long_block_is_cut():
    x = fluid.layers.data("x", [3])
    for _ in range(70):
        x = fluid.layers.scale(x, 2.0)
    html = fluid.default_main_program().global_block()._repr_html_()
    assert html.count("<tr>") == 60 and "and 10 more" in html


def test_a_variable_shows_dtype_and_shape():
    assert (
        text_of(fluid.layers.data("x", [3], lod_level=1)._repr_html_()) == "x fp32[-1, 3] stop_gradient, is_data, lod 1"
    )


def test_curves_are_drawn_with_their_last_values():
    curves = Ploter("train <cost>", "test cost")
    assert curves._repr_html_() == "<i>no points</i>"
    for step, value in enumerate([3.0, float("nan"), 1.25]):
        curves.append("train <cost>", step, value)
    html = curves._repr_html_()
    assert text_of(html) == "train <cost> 1.25 at step 2"
    assert 'points="4.0,4.0 356.0,86.0"' in html
