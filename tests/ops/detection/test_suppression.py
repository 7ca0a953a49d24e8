"""Suppression and average precision: what golden cases cannot show, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.contrib.layers import multiclass_nms2

BOXES = np.array([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]], "float32")
FOUND = np.array([[1, 0.9, 0, 0, 0.5, 0.5], [1, 0.8, 0.5, 0.5, 1, 1]], "float32")
TRUTH = np.array([[1, 0, 0, 0.5, 0.5], [1, 0.6, 0, 0.9, 0.4]], "float32")


def data(name, shape, **options):
    return fluid.layers.data(name, shape, append_batch_size=False, **options)


def run(fetches, **feed):
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetches, return_numpy=False)
    return [np.array(each) for each in found]


def sequences(array, *lengths):
    return fluid.create_lod_tensor(array, [list(lengths)], fluid.CPUPlace())


def test_nothing_is_found_as_no_rows_or_as_minus_one():
    fed = data("box", [1, 3, 4]), data("score", [1, 2, 3])
    out, index = multiclass_nms2(*fed, 0.5, 3, 3, return_index=True)
    one = fluid.layers.multiclass_nms(*fed, 0.5, 3, 3)
    rows, places, nothing = run([out, index, one], box=BOXES, score=np.zeros((1, 2, 3), "float32"))
    assert (rows.shape, places.shape, nothing.tolist()) == ((0, 6), (0, 1), [[-1]])


def test_padded_sequences_are_suppressed_without_their_padding():
    box, score = data("box", [-1, 2, 4], lod_level=1), data("score", [-1, 2], lod_level=1)
    kept = fluid.layers.multiclass_nms(fluid.layers.scale(box, 2.0), score, 0.1, -1, -1, 0.5)
    rows = np.repeat(BOXES[0][:, None], 2, 1)
    points = np.array([[0, 0.9], [0, 0.8], [0, 0.7]], "float32")
    (found,) = run([kept], box=sequences(rows, 2, 1), score=sequences(points, 2, 1))
    assert found[:, 1].tolist() == pytest.approx([0.9, 0.7])
    np.testing.assert_array_equal(found[:, 2:], 2 * BOXES[0][[0, 2]])


def test_shapes_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match=r"They are \[2, 3\] and \[2, 3, 5\]"):
        fluid.layers.multiclass_nms(data("b", [2, 3, 5]), data("s", [2, 3]), 0.1, 1, 1)
    with pytest.raises(
        ValueError, match=r"boxes of each class must have 4 coordinates, but BBoxes has shape \[2, 3, 8"
    ):
        fluid.layers.multiclass_nms(data("c", [2, 3, 8]), data("t", [2, 3]), 0.1, 1, 1)
    with pytest.raises(ValueError, match=r"scores must be of one class, \[images, 1, boxes\], not \(2, 2, 3\)"):
        fluid.layers.locality_aware_nms(data("d", [2, 3, 4]), data("u", [2, 2, 3]), 0.1, 1, 1)
    b = data("e", [2, 3, 4])
    with pytest.raises(ValueError, match="must be of as many levels, but are of 1, 2 and 1"):
        fluid.layers.retinanet_detection_output([b], [b, b], [b], b)
    with pytest.raises(ValueError, match=r"level 0 must have BBoxes .* but has \[2, 3\], \[2, 3, 4\] and \[2, 3, 4\]"):
        fluid.layers.retinanet_detection_output([data("f", [2, 3])], [b], [b], b)
    with pytest.raises(ValueError, match=r"Label must have rows of 5 or 6 numbers, but has shape \[2, 4\]"):
        fluid.layers.detection_map(data("g", [2, 6]), data("h", [2, 4]), 3)


def test_boxes_of_classes_must_be_sequences():
    out = fluid.layers.multiclass_nms(data("b", [3, 2, 4]), data("s", [3, 2]), 0.1, 1, 1)
    with pytest.raises(ValueError, match="BBoxes must hold a sequence for each image, or Scores must have 3 dims"):
        run([out], b=np.ones((3, 2, 4), "float32"), s=np.ones((3, 2), "float32"))


def metric(ap_version="integral"):
    found, label = data("found", [-1, 6], lod_level=1), data("label", [-1, 1], lod_level=1)
    return fluid.metrics.DetectionMAP(
        found, label, data("box", [-1, 4], lod_level=1), class_num=3, ap_version=ap_version
    )


def batch(found, truth):
    fed = {"found": found, "label": truth[:, :1].copy(), "box": truth[:, 1:].copy()}
    return {name: sequences(value, len(value)) for name, value in fed.items()}


def test_precision_accumulates_until_it_is_reset():
    detections = metric()
    exe, variables = fluid.Executor(fluid.CPUPlace()), detections.get_map_var()
    exe.run(fluid.default_startup_program())
    first = [float(each[0]) for each in exe.run(feed=batch(FOUND, TRUTH), fetch_list=variables)]
    second = [float(each[0]) for each in exe.run(feed=batch(FOUND[:1], TRUTH[:1]), fetch_list=variables)]
    assert first == pytest.approx([0.5, 0.5])
    assert second == pytest.approx([1.0, 2 / 3])  # two objects of three are found, before the wrong box
    detections.reset(exe)
    assert float(exe.run(feed=batch(FOUND[:1], TRUTH[:1]), fetch_list=variables)[1][0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "options", "problem"),
    [
        ({"found": sequences(FOUND * 3, 2)}, {}, r"DetectRes has classes that are not in \[0, 3\)"),
        ({"found": sequences(FOUND, 1, 1)}, {}, "DetectRes has 2 sequences, but Label has 1"),
        ({"found": FOUND}, {}, "DetectRes must hold sequences"),
        ({}, {"ap_version": "interpolated"}, "ap_type must be integral or 11point, not 'interpolated'"),
    ],
)
def test_detections_that_cannot_be_judged_are_an_error(change, options, problem):
    precision, _ = metric(**options).get_map_var()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(ValueError, match=problem):
        exe.run(feed={**batch(FOUND, TRUTH), **change}, fetch_list=[precision])


def test_a_state_belongs_to_as_many_classes_as_its_counts():
    fed = data("found", [-1, 6], lod_level=1), data("label", [-1, 5], lod_level=1)
    state = [data("count", [4, 1], dtype="int32"), *(data(name, [-1, 2], lod_level=1) for name in ("right", "wrong"))]
    precision = fluid.layers.detection_map(*fed, 4, has_state=data("has", [1], dtype="int32"), input_states=state)
    rows = sequences(np.ones((2, 2), "float32"), 1, 1)
    feed = {"has": np.ones(1, "int32"), "count": np.ones((4, 1), "int32"), "right": rows, "wrong": rows}
    with pytest.raises(ValueError, match="PosCount is of 4 classes, so TruePos and FalsePos must be as many sequences"):
        run([precision], found=sequences(FOUND, 2), label=sequences(TRUTH, 2), **feed)
