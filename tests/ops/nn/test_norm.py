"""Normalisation: unknown batch sizes, numbers far from zero, and what the ops refuse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ops.core.infer import ShapeDtype, infer_outputs
from refluid.ops.core.registry import lookup

FLOAT = np.dtype(np.float32)


def call(type, attrs, **inputs):
    with jax.enable_x64(True):
        arguments = {slot: [jnp.asarray(value, jnp.float32)] for slot, value in inputs.items()}
        return {slot: np.asarray(values[0]) for slot, values in lookup(type).call(arguments, attrs).items()}


def inferred(type, attrs, **shapes):
    described = {slot: [ShapeDtype(shape, FLOAT)] for slot, shape in shapes.items()}
    return {slot: values[0].shape for slot, values in infer_outputs(lookup(type), described, attrs).items()}


def test_shapes_follow_an_unknown_batch():
    channels = {"Scale": (3,), "Bias": (3,)}
    moving = {"Mean": (3,), "Variance": (3,)}
    assert inferred("batch_norm", {}, X=(-1, 3, 4, 4), **channels, **moving) == {
        "Y": (-1, 3, 4, 4),
        "MeanOut": (3,),
        "VarianceOut": (3,),
        "SavedMean": (3,),
        "SavedVariance": (3,),
    }
    assert inferred("layer_norm", {"begin_norm_axis": 2}, X=(-1, 5, 8)) == {
        "Y": (-1, 5, 8),
        "Mean": (-1,),
        "Variance": (-1,),
    }
    assert inferred("group_norm", {"groups": 3}, X=(-1, 3, -1, -1), **channels)["Mean"] == (-1, 3)
    assert inferred("instance_norm", {}, X=(-1, 3, -1, 7), **channels)["Y"] == (-1, 3, -1, 7)


def test_batch_norm_is_precise_far_from_zero():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(16, 2, 8, 8)) + 1000.0).astype(np.float32)
    ones, zeros = np.ones(2), np.zeros(2)
    outputs = call("batch_norm", {}, X=x, Scale=ones, Bias=zeros, Mean=zeros, Variance=ones)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(outputs["SavedMean"], exact.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(outputs["SavedVariance"], 1 / np.sqrt(exact.var((0, 2, 3)) + 1e-5), rtol=1e-5)


def test_sync_batch_norm_is_batch_norm_on_one_device():
    x = np.random.default_rng(0).normal(size=(4, 2, 3, 3))
    inputs = {"X": x, "Scale": np.ones(2), "Bias": np.zeros(2), "Mean": np.zeros(2), "Variance": np.ones(2)}
    one, other = (call(type, {}, **inputs) for type in ("batch_norm", "sync_batch_norm"))
    for slot, value in one.items():
        np.testing.assert_array_equal(other[slot], value)


def test_half_precision_is_normalised_in_single_precision():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2, 4, 4)) * 100, jnp.float16)
    ones, zeros = jnp.ones(2, jnp.float32), jnp.zeros(2, jnp.float32)
    arguments = {"X": [x], "Scale": [ones], "Bias": [zeros], "Mean": [zeros], "Variance": [ones]}
    outputs = lookup("batch_norm").call(arguments, {})
    assert (outputs["Y"][0].dtype, outputs["SavedMean"][0].dtype) == (jnp.float16, jnp.float32)
    assert np.isfinite(np.asarray(outputs["SavedVariance"][0])).all()


X4, ONE = np.ones((2, 6, 2, 2)), np.ones(1)


@pytest.mark.parametrize(
    ("type", "attrs", "inputs", "words"),
    [
        ("batch_norm", {"data_layout": "CNHW"}, {"X": X4}, "data_layout must be NCHW or NHWC"),
        ("batch_norm", {}, {"X": np.ones(3)}, "needs a batch and a channel dim"),
        ("layer_norm", {"begin_norm_axis": 4}, {"X": X4}, r"begin_norm_axis must be in \[1, 3\]"),
        ("layer_norm", {}, {"X": X4, "Scale": np.ones(5)}, "Scale has 5 elements where each row of X has 24"),
        ("group_norm", {"groups": 4}, {"X": X4}, "groups=4 does not divide the 6 channels"),
        ("affine_channel", {"data_layout": "NCHW"}, {"X": X4, "Scale": ONE, "Bias": ONE}, "for 6 channels of X"),
        (
            "data_norm",
            {"slot_dim": 4},
            {"X": np.ones((2, 6)), "BatchSize": np.ones(6), "BatchSum": np.ones(6), "BatchSquareSum": np.ones(6)},
            "slot_dim=4 does not divide the 6 columns",
        ),
    ],
)
def test_what_does_not_fit_is_refused(type, attrs, inputs, words):
    if type == "batch_norm":
        inputs = {**inputs, **dict.fromkeys(("Scale", "Bias", "Mean", "Variance"), np.ones(6))}
    with pytest.raises(ValueError, match=words):
        call(type, attrs, **inputs)


def test_layers_refuse_what_they_cannot_use():
    x = fluid.layers.data("x", [6, 4, 4])
    for layer in (fluid.layers.batch_norm, fluid.layers.instance_norm):
        with pytest.raises(ValueError, match="bias_attr cannot be False"):
            layer(x, bias_attr=False)
    with pytest.raises(ValueError, match="param_attr cannot be False"):
        fluid.layers.layer_norm(x, param_attr=False)
    with pytest.raises(ValueError, match="data_layout must be NCHW or NHWC"):
        fluid.layers.group_norm(x, 2, data_layout="CHWN")
    with pytest.raises(ValueError, match="four dims"):
        fluid.layers.lrn(fluid.layers.data("y", [6]))
    with pytest.raises(ValueError, match="both scale and bias"):
        fluid.layers.affine_channel(x)
    with pytest.raises(TypeError, match="batch_norm"):
        fluid.layers.batch_norm(np.ones((2, 3)))


def test_moving_averages_follow_the_batches():
    x = fluid.layers.data("x", [3])
    fluid.layers.batch_norm(x, momentum=0.5, moving_mean_name="mean", moving_variance_name="variance")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    batch = np.random.default_rng(0).normal(2.0, 3.0, (50, 3)).astype(np.float32)
    for _ in range(2):
        exe.run(feed={"x": batch})
    mean, variance = (np.array(fluid.global_scope().find_var(name).get_tensor()) for name in ("mean", "variance"))
    np.testing.assert_allclose(mean, batch.mean(0) * 0.75, rtol=1e-5)
    np.testing.assert_allclose(variance, 0.25 + batch.var(0) * 0.75, rtol=1e-5)
