"""Boxes: the arithmetic that ops share, and errors about shapes."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ops.detection.boxes import Centered, centered, corners, decode, encode, round_half_up

BOXES = np.array([[0, 0, 2, 3], [1, 5, 4, 6]], "float32")
PRIORS = np.array([[1, 1, 2, 5], [0, 4, 4, 9]], "float32")


@pytest.mark.parametrize("normalized", [True, False])
def test_decoding_undoes_encoding(normalized):
    priors = centered(PRIORS, normalized)
    codes = encode(centered(BOXES, normalized), priors)
    np.testing.assert_allclose(corners(decode(codes, priors), normalized), BOXES, atol=1e-5)


def test_ratios_of_decoded_boxes_can_be_bounded():
    unit = Centered(*np.float32([[0], [0], [1], [1]]))
    assert decode(np.float32([[0, 0, 9, 1]]), unit, bound=2.0).width == pytest.approx(np.exp(2))


def test_halves_are_rounded_up():
    x = np.array([0.49999997, 0.5, 1.5, 2.4999], "float32")
    assert round_half_up(x).tolist() == [0, 1, 2, 2]


def data(name, shape, **options):
    return fluid.layers.data(name, shape, append_batch_size=False, **options)


@pytest.mark.parametrize(
    ("attrs", "shapes", "problem"),
    [
        ({}, ([3, 4], [2, 5]), r"box_coder: TargetBox must hold boxes of 4 coordinates, but has shape \[2, 5\]"),
        ({}, ([3, 4], [2, 3, 4]), r"TargetBox must have 2 dims to be encoded, but has shape \[2, 3, 4\]"),
        ({"code_type": "decode_center_size"}, ([3, 4], [3, 2, 4]), r"TargetBox must have shape \[N, 3, 4\]"),
        ({"code_type": "decode_center_size", "axis": 1}, ([3, 4], [2, 3, 4]), r"must have shape \[3, N, 4\]"),
        ({"code_type": "decode_center_size", "axis": 2}, ([3, 4], [2, 3, 4]), "axis must be 0 or 1, not 2"),
        ({"code_type": "encode"}, ([3, 4], [2, 4]), "encode_center_size or decode_center_size, not encode"),
    ],
)
def test_boxes_that_do_not_fit_their_priors_are_an_error(attrs, shapes, problem):
    prior, target = (data(name, shape) for name, shape in zip("pt", shapes, strict=True))
    with pytest.raises(ValueError, match=problem):
        fluid.layers.box_coder(prior, [0.1, 0.1, 0.2, 0.2], target, **attrs)


def test_variances_that_do_not_fit_their_priors_are_an_error():
    prior, target = data("p", [3, 4]), data("t", [2, 4])
    with pytest.raises(ValueError, match=r"PriorBoxVar \[2, 4\] and PriorBox \[3, 4\] differ in shape"):
        fluid.layers.box_coder(prior, data("v", [2, 4]), target)
    with pytest.raises(ValueError, match="variance must have 4 numbers, but has 3"):
        fluid.layers.box_coder(prior, [1, 2, 3], target)
    with pytest.raises(TypeError, match=r"prior_box_var must be a variable, a list or None, not \(1, 2, 3, 4\)"):
        fluid.layers.box_coder(prior, (1, 2, 3, 4), target)


def test_boxes_without_variance_are_encoded_as_they_are():
    out = fluid.layers.box_coder(data("p", [2, 4]), None, data("t", [2, 4]))
    (codes,) = fluid.Executor(fluid.CPUPlace()).run(feed={"p": PRIORS, "t": BOXES}, fetch_list=[out])
    np.testing.assert_allclose(codes[[0, 1], [0, 1]], encode(centered(BOXES), centered(PRIORS)), rtol=1e-6)


def test_fluid_1_8_has_the_kind_of_boxes_third():
    out = fluid.layers.iou_similarity(data("p", [2, 4]), data("t", [2, 4]), False)
    assert out.op.attr("box_normalized") is False


def test_boxes_are_clipped_to_as_many_images_as_there_are():
    boxes, info = data("x", [-1, 4], lod_level=1), data("info", [3, 3])
    fluid.layers.box_clip(boxes, info)
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": fluid.create_lod_tensor(BOXES, [[1, 1]], fluid.CPUPlace()), "info": np.ones((3, 3), "float32")}
    with pytest.raises(ValueError, match="box_clip: Input has 2 sequences, but there are 3 images"):
        exe.run(feed=feed)
    with pytest.raises(ValueError, match="Input must hold sequences"):
        exe.run(feed={**feed, "x": BOXES})
