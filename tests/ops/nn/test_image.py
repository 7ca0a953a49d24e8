"""Image ops and layers: unknown sizes, matrices that are not gathers, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ops.core.registry import lookup


def call(type, attrs, **inputs):
    with jax.enable_x64(True):
        arguments = {slot: [jnp.asarray(value)] for slot, value in inputs.items()}
        return np.asarray(next(iter(lookup(type).call(arguments, attrs).values()))[0])


def image(*shape, name="x"):
    return fluid.data(name, list(shape))


def test_sizes_that_are_not_known_stay_open():
    x = image(-1, 3, -1, 8)
    assert fluid.layers.image_resize(x, scale=2.0).shape == (-1, 3, -1, 16)
    assert fluid.layers.image_resize(x, [4, 5]).shape == (-1, 3, 4, 5)
    y = image(-1, 4, 6, 6, name="y")
    assert fluid.layers.space_to_depth(y, 2).shape == (-1, 16, 3, 3)
    assert fluid.layers.pixel_shuffle(y, 2).shape == (-1, 1, 12, 12)
    assert fluid.layers.temporal_shift(y, 7).shape == (-1, 4, 6, 6)
    assert fluid.layers.grid_sampler(y, image(-1, 6, 6, 2, name="grid")).shape == (-1, 4, 6, 6)


def test_large_factors_use_the_same_numbers_as_small_ones():
    """A gradient that sums many pixels is a product of matrices; it must equal the gathers'."""
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    attrs = {"out_h": 40, "out_w": 30, "align_corners": False}
    gradient = {"Out@GRAD": [jnp.ones((1, 1, 40, 30), jnp.float32)], "X": [jnp.asarray(x)]}
    found = lookup("nearest_interp_grad").call(gradient, attrs)["X@GRAD"][0]
    np.testing.assert_allclose(found, np.full((1, 1, 2, 3), 200.0))
    np.testing.assert_array_equal(call("nearest_interp", attrs, X=x), x.repeat(20, 2).repeat(10, 3))


def test_linear_interpolation_is_exact_on_planes():
    rows, columns = np.meshgrid(np.arange(5.0), np.arange(4.0), indexing="ij")
    plane = (2 * rows - columns)[None, None].astype(np.float32)
    out = call("bilinear_interp", {"out_h": 9, "out_w": 7}, X=plane)
    rows, columns = np.meshgrid(np.linspace(0, 4, 9), np.linspace(0, 3, 7), indexing="ij")
    np.testing.assert_allclose(out[0, 0], 2 * rows - columns, atol=1e-5)


def test_an_identity_grid_samples_the_image_itself():
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 5)).astype(np.float32)
    grid = call("affine_grid", {"output_shape": [1, 2, 4, 5]}, Theta=theta)
    np.testing.assert_allclose(call("grid_sampler", {}, X=x, Grid=grid), x, atol=1e-5)


def test_pixel_shuffle_makes_blocks_of_channels():
    x = np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1)
    np.testing.assert_array_equal(call("pixel_shuffle", {"upscale_factor": 2}, X=x), [[[[0, 1], [2, 3]]]])


X = np.ones((2, 6, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("type", "attrs", "words"),
    [
        ("space_to_depth", {"blocksize": 2}, "must divide height and width, and its square the channels"),
        ("pixel_shuffle", {"upscale_factor": 2}, "does not divide the 6 channels"),
        ("shuffle_channel", {"group": 4}, "group=4 does not divide the 6 channels"),
        ("temporal_shift", {"seg_num": 3}, "seg_num=3 does not divide the 2 frames"),
        ("temporal_shift", {"seg_num": 2, "shift_ratio": 0.5}, "shift_ratio must be between 0 and 0.5"),
        ("spp", {"pooling_type": "sum"}, "pooling_type must be max or avg"),
        ("bilinear_interp", {"out_h": 0, "out_w": 4}, "cannot be resized to"),
        ("trilinear_interp", {"scale": 2.0}, "X must have 5 dims"),
    ],
)
def test_ops_refuse_what_does_not_fit(type, attrs, words):
    with pytest.raises(ValueError, match=words):
        call(type, attrs, X=X)


def test_unpool_knows_only_max():
    with pytest.raises(ValueError, match="unpooling_type must be max"):
        call("unpool", {"unpooling_type": "mean"}, X=X, Indices=np.zeros((2, 6, 4, 4), np.int32))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, ValueError, "requires out_shape or scale"),
        ({"out_shape": [4, 4], "resample": "CUBIC"}, ValueError, "BILINEAR, TRILINEAR or NEAREST"),
        ({"out_shape": [4, 4, 4], "resample": "TRILINEAR"}, ValueError, "input with 5 dims, got 4"),
        ({"out_shape": [4]}, ValueError, "must hold 2 sizes, not 1"),
        ({"out_shape": [4, 0]}, ValueError, "all sizes must be positive"),
        ({"out_shape": 4}, TypeError, "out_shape must be list or tuple or Variable"),
        ({"scale": "2"}, TypeError, "scale must be int or float or Variable"),
        ({"scale": -1.0}, ValueError, "scale must be positive"),
        ({"scale": 2.0, "align_corners": 1}, TypeError, "align_corners must be True or False"),
        ({"scale": 2.0, "align_mode": 2}, ValueError, "align_mode must be 0 or 1"),
        ({"scale": 2.0, "data_format": "NCDHW"}, ValueError, "data_format must be one of"),
        ({"out_shape": [4, 4], "actual_shape": [4, 4]}, TypeError, "actual_shape must be Variable"),
    ],
)
def test_image_resize_checks_its_arguments(options, error, words):
    with pytest.raises(error, match=words):
        fluid.layers.image_resize(image(-1, 3, 8, 8), **options)


def test_other_layers_check_their_arguments():
    x = image(-1, 4, 8, 8)
    with pytest.raises(TypeError, match="group must be int"):
        fluid.layers.shuffle_channel(x, 2.0)
    with pytest.raises(TypeError, match="space_to_depth: x must be Variable"):
        fluid.layers.space_to_depth(np.ones(3), 2)
    with pytest.raises(TypeError, match="out_shape must be list or tuple or Variable"):
        fluid.layers.affine_grid(image(-1, 2, 3, name="theta"), 3)
    with pytest.raises(ValueError, match="four dims"):
        fluid.layers.image_resize_short(image(-1, 3, name="flat"), 4)
