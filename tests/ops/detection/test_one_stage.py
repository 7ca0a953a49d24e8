"""Priors and YOLO: what golden cases cannot show, and errors about shapes."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.lowering.plan import Where, make_plan

ANCHORS = [10, 13, 16, 30]


def data(name, shape, **options):
    return fluid.layers.data(name, shape, append_batch_size=False, **options)


def run(fetches, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetches)


def test_boxes_of_maps_that_are_not_square_lie_in_their_cells():
    x, size = data("x", [1, 16, 2, 5]), data("size", [1, 2], dtype="int32")
    boxes, _ = fluid.layers.yolo_box(x, size, ANCHORS, 3, 0.0, 32, clip_bbox=False)
    (found,) = run([boxes], x=np.zeros((1, 16, 2, 5), "float32"), size=np.array([[80, 100]], "int32"))
    center = (found[0, :, :2] + found[0, :, 2:]).reshape(2, 2, 5, 2) / 2
    np.testing.assert_allclose(center[..., 0], np.broadcast_to([10, 30, 50, 70, 90], (2, 2, 5)), rtol=1e-5)
    np.testing.assert_allclose(center[..., 1], np.broadcast_to([[20], [60]], (2, 2, 5)), rtol=1e-5)


def test_the_loss_of_a_map_that_is_not_square_is_least_where_its_boxes_are_right():
    truth = np.array([[[0.7, 0.25, 0.2, 0.3]]], "float32")
    x = np.full((1, 8, 2, 5), -20, "float32")
    # Cell (0, 3) predicts center (3.5, 0.5) and the size over that of the anchor; the object is of class 1.
    x[0, :, 0, 3] = [0, 0, np.log(0.2 * 160 / 16), np.log(0.3 * 64 / 30), 20, -20, 20, -20]
    fed = data("x", [1, 8, 2, 5]), data("box", [1, 1, 4]), data("label", [1, 1], dtype="int32")
    loss = fluid.layers.yolov3_loss(*fed, ANCHORS, [1], 3, 0.7, 32, use_label_smooth=False)
    fed[0].stop_gradient = False
    gradient = fluid.gradients([loss], [fed[0]])[0]
    found, slope = run([loss, gradient], x=x, box=truth, label=np.array([[1]], "int32"))
    assert found == pytest.approx(2 * np.log(2) * (2 - 0.06), abs=1e-5)  # the entropy of a center in the middle
    np.testing.assert_allclose(np.delete(slope[0], [2, 3], axis=0), 0, atol=1e-6)  # absolute values have no slope at 0


def test_an_object_at_the_border_belongs_to_the_last_cell():
    fed = data("x", [1, 16, 3, 3]), data("box", [1, 1, 4]), data("label", [1, 1], dtype="int32")
    loss = fluid.layers.yolov3_loss(*fed, ANCHORS, [0, 1], 3, 0.7, 32)
    mask = loss.op.output("ObjectnessMask")[0]
    box = np.array([[[1, 1, 0.2, 0.3]]], "float32")
    (found,) = run([mask], x=np.zeros((1, 16, 3, 3), "float32"), box=box, label=np.array([[1]], "int32"))
    assert np.argwhere(found == 1).tolist() == [[0, 1, 2, 2]]


@pytest.mark.parametrize(
    ("shapes", "mask", "problem"),
    [
        (([2, 15, 3, 3], [2, 5, 4], [2, 5]), [0, 1], r"2 anchors x \(5 \+ 3 classes\) = 16 channels"),
        (([2, 16, 3, 3], [2, 5, 3], [2, 5]), [0, 1], r"GTBox must have shape \[2, objects, 4\], but has \[2, 5, 3\]"),
        (([2, 16, 3, 3], [2, 5, 4], [2, 5, 1]), [0, 1], r"GTLabel must have shape \[2, 5\], but has \[2, 5, 1\]"),
        (([2, 16, 3, 3], [2, 5, 4], [2, 5]), [0, 2], r"anchor_mask \[0, 2\] names anchors beyond the 2"),
    ],
)
def test_inputs_of_the_yolo_loss_that_do_not_fit_are_an_error(shapes, mask, problem):
    x, box, label = (data(name, shape) for name, shape in zip("xbs", shapes, strict=True))
    label = fluid.layers.cast(label, "int32")
    with pytest.raises(ValueError, match=problem):
        fluid.layers.yolov3_loss(x, box, label, ANCHORS, mask, 3, 0.7, 32)


def test_inputs_of_yolo_boxes_that_do_not_fit_are_an_error():
    x, size = data("x", [2, 16, 3, 3]), data("size", [3, 2], dtype="int32")
    with pytest.raises(ValueError, match=r"yolo_box: ImgSize must have shape \[2, 2\]"):
        fluid.layers.yolo_box(x, size, ANCHORS, 3, 0.01, 32)
    with pytest.raises(ValueError, match="anchors must be pairs of width and height, but has 3 numbers"):
        fluid.layers.yolo_box(x, size, ANCHORS[:3], 3, 0.01, 32)
    with pytest.raises(TypeError, match="anchors"):
        fluid.layers.yolo_box(x, size, 3, 3, 0.01, 32)


def test_fluid_1_8_has_clipping_seventh():
    x, size = data("x", [2, 16, 3, 3]), data("size", [2, 2], dtype="int32")
    boxes, _ = fluid.layers.yolo_box(x, size, ANCHORS, 3, 0.01, 32, False)
    assert boxes.op.attr("clip_bbox") is False


def test_priors_that_do_not_fit_are_an_error():
    layers, x, image = fluid.layers, data("x", [2, 4, 3, 3]), data("image", [2, 3, 30, 30])
    with pytest.raises(ValueError, match="prior_box: there are 1 max_sizes for 2 min_sizes"):
        layers.prior_box(x, image, [1.0, 2.0], [3.0])
    with pytest.raises(ValueError, match="prior_box: steps must be the width and the height of a cell, not 3"):
        layers.prior_box(x, image, [1.0], steps=3)
    with pytest.raises(ValueError, match="variances must have 4 numbers, but has 1"):
        layers.prior_box(x, image, [1.0], variance=[0.1])
    with pytest.raises(ValueError, match=r"Image must have 4 dims, NCHW, but has shape \[2, 36\]"):
        layers.prior_box(x, layers.reshape(x, [2, 36]), [1.0])
    with pytest.raises(ValueError, match="there are 2 densities for 1 sizes"):
        layers.density_prior_box(x, image, [1, 2], [3.0], [1.0])
    with pytest.raises(TypeError, match="fixed_ratios"):
        layers.density_prior_box(x, image, [1], [3.0])
    with pytest.raises(ValueError, match="stride must be the width and the height of a cell, not None"):
        layers.anchor_generator(x, [64.0], [1.0])


def test_priors_of_images_of_any_size_are_made_for_the_size_that_is_fed():
    x, image = data("x", [-1, 4, -1, -1]), data("image", [-1, 3, -1, -1])
    boxes, _ = fluid.layers.prior_box(x, image, [2.0])
    assert boxes.shape == (-1, -1, 1, 4)
    for height, width in ((1, 2), (3, 1)):
        fed = {"x": np.zeros((1, 4, height, width), "float32"), "image": np.zeros((1, 3, 8, 8), "float32")}
        (found,) = run([boxes], **fed)
        assert found.shape == (height, width, 1, 4)
        assert found[0, 0, 0, 0] == pytest.approx((4 / width - 1) / 8)


def test_boxes_of_classes_that_do_not_fit_are_an_error():
    prior, four, codes, scores = data("p", [3, 4]), data("v", [4]), data("t", [3, 8]), data("s", [3, 3])
    with pytest.raises(ValueError, match=r"BoxScore \[3, classes\], but they are \[3, 8\] and \[3, 3\]"):
        fluid.layers.box_decoder_and_assign(prior, four, codes, scores, 4.135)
    with pytest.raises(ValueError, match=r"PriorBoxVar must have 4 numbers, but has shape \[3, 4\]"):
        fluid.layers.box_decoder_and_assign(prior, prior, codes, scores, 4.135)
    with pytest.raises(ValueError, match=r"pairs of channels, but has shape \[1, 3, 2, 2\]"):
        fluid.layers.polygon_box_transform(data("x", [1, 3, 2, 2]))


def test_labels_of_the_focal_loss_that_do_not_fit_are_an_error():
    x, count = data("x", [3, 4]), data("n", [1], dtype="int32")
    with pytest.raises(ValueError, match=r"X \[3, 4\] and Label \[3\] must be \[N, classes\] and \[N, 1\]"):
        fluid.layers.sigmoid_focal_loss(x, data("l", [3], dtype="int32"), count)
    with pytest.raises(TypeError, match="int64"):
        fluid.layers.sigmoid_focal_loss(x, data("k", [3, 1], dtype="int64"), count)


def test_one_stage_detectors_train_in_one_compiled_piece():
    layers, x, image = fluid.layers, data("x", [2, 4, 3, 3]), data("image", [2, 3, 30, 30])
    truth = data("box", [2, 5, 4]), data("label", [2, 5], dtype="int32")
    moved = layers.deformable_conv(x, layers.conv2d(x, 18, 3, padding=1), None, 16, 3, padding=1, modulated=False)
    offsets, scores, boxes, _ = layers.multi_box_head([x], image, 30, 5, [2.0], min_sizes=[4.0], max_sizes=[9.0])
    decoded = layers.box_coder(boxes, [0.1] * 4, offsets, "decode_center_size")
    loss = layers.mean(layers.yolov3_loss(moved, *truth, ANCHORS, [0, 1], 3, 0.7, 32)) + layers.mean(scores)
    fluid.optimizer.SGD(0.1).minimize(loss)
    plan = make_plan(fluid.default_main_program().global_block(), [loss.name, decoded.name])
    assert [piece.where for piece in plan.pieces] == [Where.COMPILED]


def test_a_head_on_one_map_has_the_shapes_of_one_on_several():
    x, image = data("x", [2, 4, 3, 3]), data("image", [2, 3, 30, 30])
    offsets, scores, boxes, _ = fluid.layers.multi_box_head([x], image, 30, 5, [2.0], min_sizes=[4.0], max_sizes=[9.0])
    assert offsets.shape[2] == 4 and scores.shape[2] == 5 and boxes.shape == (36, 4)
    assert boxes.stop_gradient


def test_a_head_whose_sizes_do_not_fit_its_maps_is_an_error():
    x, image = data("x", [2, 4, 3, 3]), data("image", [2, 3, 30, 30])
    with pytest.raises(ValueError, match="aspect_ratios must have an element for each of 3 inputs"):
        fluid.layers.multi_box_head([x] * 3, image, 30, 5, [2.0], min_ratio=20, max_ratio=90)
    with pytest.raises(ValueError, match="pass min_sizes and max_sizes, or, for more than two inputs"):
        fluid.layers.multi_box_head([x] * 2, image, 30, 5, [2.0, 2.0], min_ratio=20, max_ratio=90)
    with pytest.raises(ValueError, match="inputs must be a list of feature maps"):
        fluid.layers.multi_box_head(x, image, 30, 5, [2.0])
