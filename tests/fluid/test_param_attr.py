"""What users may pass as param_attr and bias_attr."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from paddle.fluid.initializer import Constant
from paddle.fluid.param_attr import ParamAttr, WeightNormParamAttr


def test_every_kind_of_description_becomes_an_attribute():
    initializer, regularizer = Constant(2.0), fluid.regularizer.L2Decay(0.1)
    assert ParamAttr._to_attr("w").name == "w"
    assert ParamAttr._to_attr(initializer).initializer is initializer
    assert ParamAttr._to_attr(regularizer).regularizer is regularizer
    assert ParamAttr._to_attr(None).name is None
    assert isinstance(ParamAttr._to_attr(True), ParamAttr)
    assert ParamAttr._to_attr(False) is False
    assert [attr and attr.name for attr in ParamAttr._to_attr(["a", False, ("b",)])[:2]] == ["a", False]
    with pytest.raises(TypeError, match="got int"):
        ParamAttr._to_attr(3)


def test_names_are_strings_that_are_not_empty():
    with pytest.raises(TypeError, match="name must be a string"):
        ParamAttr(name=3)
    with pytest.raises(ValueError, match="cannot be empty"):
        ParamAttr(name="")


def test_the_parameter_has_what_was_said():
    clip, decay = fluid.clip.GradientClipByValue(1.0), fluid.regularizer.L1Decay(0.5)
    attr = ParamAttr("w", Constant(1.0), 0.5, decay, False, clip, False)
    parameter = fluid.layers.create_parameter([2], "float32", attr=attr)
    assert (parameter.name, parameter.trainable, parameter.do_model_average) == ("w", False, False)
    assert parameter.optimize_attr == {"learning_rate": 0.5}
    assert parameter.regularizer is not None and parameter.gradient_clip_attr is not None


def test_weight_normalisation_has_its_dim_first():
    attr = WeightNormParamAttr(1, "w")
    assert (attr.dim, attr.name, attr.do_model_average) == (1, "w", False)
    assert "dim" not in attr._to_kwargs()


@pytest.mark.parametrize("dim, shape", [(None, (1, 1)), (0, (4, 1)), (1, (1, 3))])
def test_the_magnitude_of_a_normalised_weight_has_the_rank_of_the_weight(dim, shape):
    x = fluid.layers.data("x", [4])
    fluid.layers.fc(x, 3, param_attr=WeightNormParamAttr(dim, "w"), bias_attr=False)
    parameters = fluid.default_main_program().global_block().all_parameters()
    assert [(p.name, p.shape) for p in parameters] == [("w_g", shape), ("w_v", (4, 3))]


def test_the_magnitude_of_normalised_filters_has_their_rank():
    image = fluid.layers.data("image", [4, 5, 5])
    fluid.layers.conv2d(image, 6, 3, param_attr=WeightNormParamAttr(0, "w"), bias_attr=False)
    assert fluid.default_main_program().global_block().var("w_g").shape == (6, 1, 1, 1)
