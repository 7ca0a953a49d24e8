"""Regions of interest: any number of them in one compiled step, gradients that real Fluid gets wrong, and errors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.executor import Executor
from refluid.lowering.plan import make_plan
from refluid.ops.core.registry import lookup
from refluid.ops.core.values import Ragged

RNG = np.random.RandomState(0)


def data(name, shape, **options):
    return fluid.layers.data(name, shape, append_batch_size=False, **options)


def boxes(count):
    corner = RNG.uniform(0, 3, (count, 2))
    return np.concatenate([corner, corner + RNG.uniform(1, 4, (count, 2))], 1).astype("float32")


def test_a_head_on_any_number_of_regions_is_compiled_once_and_ignores_padding():
    layers = fluid.layers
    x, rois = data("x", [2, 3, 8, 8]), data("rois", [-1, 4], lod_level=1)
    label = data("label", [-1, 1], dtype="int64", lod_level=1)
    features = layers.conv2d(x, 4, 3, padding=1)
    pooled = [
        layers.roi_align(features, rois, 2, 2, 1.0),
        layers.roi_pool(features, rois, 2, 2, 1.0),
        layers.prroi_pool(features, rois, 1.0, 2, 2),
        layers.psroi_pool(layers.conv2d(x, 8, 1), rois, 2, 1.0, 2, 2),
    ]
    scores = layers.fc([layers.flatten(each) for each in pooled], 5)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
    fluid.optimizer.SGD(0.1).minimize(loss)
    assert len(make_plan(fluid.default_main_program().global_block(), [loss.name]).pieces) == 1
    weights = [p.name for p in fluid.default_main_program().global_block().all_parameters()]
    fetches = [loss, *(f"{name}@GRAD" for name in weights)]
    executor, image = Executor(), RNG.randn(2, 3, 8, 8).astype("float32")
    executor.run(fluid.default_startup_program())
    start = {name: np.array(fluid.global_scope().find_var(name).get_tensor()) for name in weights}

    def run(rows, classes, times=1):
        halves = [[np.concatenate([each] * times) for each in (x[:4], x[4:])] for x in (rows, classes)]
        cut = [[len(half) for half in halves[0]]]
        fed = [fluid.create_lod_tensor(np.concatenate(half), cut, fluid.CPUPlace()) for half in halves]
        for name, value in start.items():
            fluid.global_scope().find_var(name).get_tensor().set(value, fluid.CPUPlace())
        return executor.run(feed={"x": image, "rois": fed[0], "label": fed[1]}, fetch_list=fetches)

    before = executor.compilations
    for count in (9, 10, 11, 12):
        rows, classes = boxes(count), RNG.randint(0, 5, (count, 1))
        once = run(rows, classes)
    assert executor.compilations - before <= 2
    # Each region twice: the mean stays, as long as padding does not count.
    for alone, doubled in zip(once, run(rows, classes, times=2), strict=True):
        np.testing.assert_allclose(alone, doubled, rtol=1e-4, atol=1e-6)


def test_regions_may_be_counted_by_another_input():
    x, rois, offsets = data("x", [2, 3, 8, 8]), data("rois", [-1, 4]), data("offsets", [3], dtype="int64")
    split = data("split", [-1, 4], lod_level=1)
    layers = fluid.layers
    pairs = [
        (layers.roi_align(x, split, 2, 2), layers.roi_align(x, rois, 2, 2, rois_lod=offsets)),
        (layers.roi_pool(x, split, 2, 2), layers.roi_pool(x, rois, 2, 2, rois_lod=offsets)),
    ]
    rows = boxes(5)
    feed = {"x": RNG.randn(2, 3, 8, 8).astype("float32"), "rois": rows, "offsets": np.array([0, 2, 5])}
    feed["split"] = fluid.create_lod_tensor(rows, [[2, 3]], fluid.CPUPlace())
    found = Executor().run(feed=feed, fetch_list=[each for pair in pairs for each in pair])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[2], found[3])


def test_an_image_without_regions_and_a_batch_without_any_have_results():
    x, rois = data("x", [2, 3, 8, 8]), data("rois", [-1, 4], lod_level=1)
    out = [fluid.layers.roi_align(x, rois, 2, 2), fluid.layers.roi_pool(x, rois, 2, 2)]
    image = np.ones((2, 3, 8, 8), "float32")
    for lengths in ([0, 3], [0, 0]):
        tensor = fluid.create_lod_tensor(boxes(sum(lengths)), [lengths], fluid.CPUPlace())
        for found in Executor().run(feed={"x": image, "rois": tensor}, fetch_list=out):
            assert found.shape == (sum(lengths), 3, 2, 2) and (found == 1).all()


def slope(type, attrs, arguments, slot, at, output):
    """The derivative of the sum of an output by one element, exactly as the op has it, and by differences."""

    def total(value):
        changed = {**arguments, slot: [value]}
        out = lookup(type).call(changed, attrs)[output][0]
        return jnp.sum(getattr(out, "data", out) * 1.5)

    value = arguments[slot][0]
    change = jnp.zeros_like(value).at[at].set(1e-4)
    numeric = (total(value + change) - total(value - change)) / 2e-4
    return float(jax.grad(total)(value)[at]), float(numeric)


@pytest.mark.parametrize(("slot", "at"), [("Input", (0, 4, 2, 3)), ("Trans", (1, 1, 1, 2)), ("Trans", (2, 0, 0, 1))])
def test_moved_parts_that_are_not_square_have_the_right_gradient(slot, at):
    attrs = {
        "no_trans": False,
        "spatial_scale": 1.0,
        "output_dim": 2,
        "group_size": [2, 3],
        "pooled_height": 2,
        "pooled_width": 3,
        "part_size": [2, 3],
        "sample_per_part": 2,
        "trans_std": 0.1,
    }
    with jax.enable_x64(True):
        rows = Ragged(jnp.asarray(boxes(3), jnp.float64), (jnp.asarray([0, 3], jnp.int32),), 3)
        arguments = {"Input": [RNG.randn(1, 12, 8, 8)], "ROIs": [rows], "Trans": [RNG.randn(3, 2, 2, 3)]}
        arguments = {slot: [jax.tree.map(jnp.asarray, value[0])] for slot, value in arguments.items()}
        found, numeric = slope("deformable_psroi_pooling", attrs, arguments, slot, at, "Output")
    assert found == pytest.approx(numeric, rel=1e-6) and found != 0


def test_a_region_without_width_has_no_gradient_instead_of_nan():
    x, rois = data("x", [1, 3, 8, 8]), data("rois", [-1, 4], lod_level=1)
    x.stop_gradient = rois.stop_gradient = False
    gradients = fluid.gradients([fluid.layers.prroi_pool(x, rois, 1.0, 2, 2)], [x, rois])
    tensor = fluid.create_lod_tensor(np.float32([[1, 1, 1, 4], [2, 2, 5, 6]]), [[2]], fluid.CPUPlace())
    feed = {"x": RNG.randn(1, 3, 8, 8).astype("float32"), "rois": tensor}
    of_x, of_rois = map(np.array, Executor().run(feed=feed, fetch_list=gradients, return_numpy=False))
    assert np.isfinite(of_x).all()
    assert (of_rois[0] == 0).all() and (of_rois[1] != 0).all()


def test_position_sensitive_pooling_of_moved_parts_has_whole_channels():
    x, rois, trans = data("x", [1, 8, 4, 4]), data("rois", [-1, 4], lod_level=1), data("trans", [-1, 2, 2, 2])
    out = fluid.layers.deformable_roi_pooling(
        x, rois, trans, pooled_height=2, pooled_width=2, group_size=[2, 2], position_sensitive=True
    )
    assert out.shape == (-1, 2, 2, 2)


def test_deformable_convolutions_of_images_of_any_size():
    x, offset = data("x", [-1, 2, -1, -1]), data("offset", [-1, 18, -1, -1])
    out = fluid.layers.deformable_conv(x, offset, None, 3, 3, stride=2, padding=1, modulated=False)
    assert out.shape == (-1, 3, -1, -1)
    known, half = data("known", [-1, 2, 8, 6]), data("half", [-1, 18, 4, 3])
    assert fluid.layers.deformable_conv(known, half, None, 3, 3, 2, 1, modulated=False).shape == (-1, 3, 4, 3)


@pytest.mark.parametrize(
    ("offset", "mask", "options", "problem"),
    [
        (
            [2, 17, 5, 5],
            [2, 9, 5, 5],
            {},
            r"deformable_conv: Offset must have shape \[2, 18, 5, 5\], but has \[2, 17, 5, 5\]",
        ),
        ([2, 18, 5, 5], [2, 9, 4, 5], {}, r"Mask must have shape \[2, 9, 5, 5\], but has \[2, 9, 4, 5\]"),
        ([2, 18, 5, 5], [2, 9, 5, 5], {"deformable_groups": 3}, "deformable_groups=3 does not divide the 4 channels"),
        ([2, 18, 5, 5], [2, 9, 5, 5], {"groups": 3}, "4 input channels are not divisible into 3 groups"),
    ],
)
def test_offsets_and_masks_that_do_not_fit_are_an_error(offset, mask, options, problem):
    x, offset, mask = data("x", [2, 4, 5, 5]), data("offset", offset), data("mask", mask)
    with pytest.raises(ValueError, match=problem):
        fluid.layers.deformable_conv(x, offset, mask, 6, 3, padding=1, **options)


def test_regions_that_do_not_fit_are_an_error():
    x, rois = data("x", [2, 3, 8, 8]), data("rois", [-1, 4], lod_level=1)
    out = fluid.layers.roi_align(x, rois, 2, 2)
    image, place = np.ones((2, 3, 8, 8), "float32"), fluid.CPUPlace()
    with pytest.raises(ValueError, match="roi_align: ROIs holds 3 sequences, but there are 2 images in X"):
        feed = {"x": image, "rois": fluid.create_lod_tensor(boxes(3), [[1, 1, 1]], place)}
        Executor().run(feed=feed, fetch_list=[out])
    with pytest.raises(ValueError, match="ROIs must hold a sequence for each image"):
        Executor().run(feed={"x": image, "rois": boxes(3)}, fetch_list=[out])
    with pytest.raises(ValueError, match=r"ROIs must have shape \[regions, 4\], but has \[3, 5\]"):
        lookup("roi_pool").rule(image, np.ones((3, 5), "float32"), np.array([0, 1, 3]))
    with pytest.raises(ValueError, match="the regions are those of 1 images, but X has 2"):
        lookup("roi_pool").rule(image, boxes(3), np.array([0, 3]))
    with pytest.raises(ValueError, match=r"X must have 4 dims, NCHW, but has shape \[2, 3\]"):
        fluid.layers.roi_pool(data("flat", [2, 3]), rois)
    with pytest.raises(TypeError, match="pooled_height"):
        fluid.layers.roi_pool(x, rois, 2.0)
    with pytest.raises(TypeError, match="spatial_scale"):
        fluid.layers.psroi_pool(x, rois, 1, 1, 1, 1)
