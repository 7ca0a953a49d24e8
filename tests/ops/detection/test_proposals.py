"""Targets of anchors and proposals: random choice, gradients with repeated rows, compiled pieces, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.lowering.plan import Where, make_plan

ANCHORS = np.array([[x, y, x + 7, y + 7] for y in range(0, 32, 4) for x in range(0, 32, 4)], "float32")
TRUTH = np.array([[3, 3, 12, 12], [18, 17, 29, 30]], "float32")
INFO = np.array([[40, 40, 1], [40, 40, 1]], "float32")
COUNT = len(ANCHORS)


def data(name, shape, **options):
    return fluid.layers.data(name, shape, append_batch_size=False, **options)


def sequences(array, *lengths):
    return fluid.create_lod_tensor(array, [list(lengths)], fluid.CPUPlace())


def fed():
    return {
        "truth": sequences(TRUTH, 1, 1),
        "crowd": sequences(np.zeros((2, 1), "int32"), 1, 1),
        "kind": sequences(np.ones((2, 1), "int32"), 1, 1),
        "info": INFO,
        "anchor": ANCHORS,
    }


def variables():
    ragged = {"truth": [-1, 4], "crowd": [-1, 1], "kind": [-1, 1]}
    dtypes = {"truth": "float32", "crowd": "int32", "kind": "int32"}
    made = {name: data(name, shape, dtype=dtypes[name], lod_level=1) for name, shape in ragged.items()}
    return {**made, "info": data("info", [2, 3]), "anchor": data("anchor", [COUNT, 4])}


def assigned(**options):
    """Which anchors are classified, as logits that are their numbers, and their labels."""
    v = variables()
    number = np.arange(2 * COUNT, dtype="float32").reshape(2, COUNT, 1)
    logit = fluid.layers.assign(number)
    code = fluid.layers.expand(logit, [1, 1, 4])
    options = {"rpn_batch_size_per_im": 12, "rpn_positive_overlap": 0.2, "rpn_negative_overlap": 0.05, **options}
    found = fluid.layers.rpn_target_assign(
        code, logit, v["anchor"], v["anchor"], v["truth"], v["crowd"], v["info"], **options
    )
    return [found[0], found[2]]


def run(fetches, exe=None, **change):
    exe = exe or fluid.Executor(fluid.CPUPlace())
    found = exe.run(feed={**fed(), **change}, fetch_list=fetches, return_numpy=False)
    return [np.array(each) for each in found]


def test_anchors_are_chosen_at_random_as_the_seed_says():
    fetches, steps = assigned(), []
    for seed in (7, 7, 8):
        fluid.default_main_program().random_seed = seed
        with fluid.scope_guard(fluid.Scope()):
            steps.append([run(fetches) for _ in range(2)])
    (first, second), again, other = steps
    np.testing.assert_array_equal(first[0], again[0][0])
    np.testing.assert_array_equal(second[0], again[1][0])
    assert first[0].tolist() != second[0].tolist() and first[0].tolist() != other[0][0].tolist()
    number, label = first
    assert len(number) == len(set(number.ravel())) == 24  # all different, 12 of each image
    assert 2 <= label.sum() <= 12


def test_every_candidate_is_chosen_as_often():
    fetches = assigned(rpn_batch_size_per_im=4)
    exe, counts = fluid.Executor(fluid.CPUPlace()), np.zeros(2 * COUNT)
    for _ in range(200):
        number, label = run(fetches, exe)
        counts[number.ravel().astype(int)[label.ravel() == 1]] += 1
    (every, label), positives = run(assigned(rpn_batch_size_per_im=1000, use_random=False)), counts > 0
    candidates = every.ravel().astype(int)[label.ravel() == 1]
    assert sorted(candidates) == np.flatnonzero(positives).tolist()
    for image in (candidates[candidates < COUNT], candidates[candidates >= COUNT]):
        share = counts[image] / counts[image].sum()
        np.testing.assert_allclose(share, 1 / len(image), atol=0.12)


def test_proposals_are_chosen_at_random():
    v = variables()
    rois = data("rois", [-1, 4], lod_level=1)
    found = fluid.layers.generate_proposal_labels(
        rois, v["kind"], v["crowd"], v["truth"], v["info"], 10, 0.3, 0.2, 0.2, 0.0, class_nums=2
    )
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"rois": sequences(np.tile(ANCHORS, (2, 1)), COUNT, COUNT)}
    first, second = (run(found[:2], exe, **feed) for _ in range(2))
    assert first[0].shape == (20, 4) and first[0].tolist() != second[0].tolist()
    assert (first[1].reshape(2, 10)[:, :3] == 1).all() and (first[1].reshape(2, 10)[:, 3:] == 0).all()


def test_an_image_without_objects_has_negatives_only():
    change = {"truth": sequences(TRUTH[:1], 0, 1), "crowd": sequences(np.zeros((1, 1), "int32"), 0, 1)}
    number, label = run(assigned(use_random=False), **change)
    assert (label[number.ravel() < COUNT] == 0).all() and (number < COUNT).sum() == 12


def test_rows_that_are_gathered_twice_and_padding_get_the_gradient_of_the_last():
    x, index = data("x", [3, 2]), data("index", [-1, 1], dtype="int32", lod_level=1)
    x.stop_gradient = False
    weight = data("weight", [-1, 2], lod_level=1)
    loss = fluid.layers.reduce_sum(fluid.layers.gather(x, index) * weight)
    (gradient,) = fluid.gradients([loss], [x])
    places, rows = np.array([[2], [0], [2], [0], [2]], "int32"), np.arange(10, dtype="float32").reshape(5, 2)
    feed = {"index": sequences(places, 2, 3), "weight": sequences(rows, 2, 3), "x": np.ones((3, 2), "float32")}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[gradient])
    assert found.tolist() == [[6, 7], [0, 0], [8, 9]]


def test_a_training_step_of_two_stages_is_one_compiled_piece():
    v, layers = variables(), fluid.layers
    image = data("image", [2, 4, 5, 5])
    score, code = layers.conv2d(image, 3, 1), layers.conv2d(image, 12, 1)
    anchor, variance = layers.anchor_generator(image, [8, 16, 24], [1.0], [0.1] * 4, [8, 8])
    rois, _ = layers.generate_proposals(layers.sigmoid(score), code, v["info"], anchor, variance, 20, 8)
    rois, label, *_ = layers.generate_proposal_labels(
        rois, v["kind"], v["crowd"], v["truth"], v["info"], 8, class_nums=2
    )
    levels, restore = layers.distribute_fpn_proposals(rois, 2, 3, 3, 8)
    pooled = layers.gather(layers.concat([layers.roi_align(image, each, 2, 2) for each in levels]), restore)
    loss = layers.softmax_with_cross_entropy(layers.fc(pooled, 2), layers.cast(label, "int64"))
    fluid.optimizer.SGD(0.1).minimize(layers.mean(loss))
    (piece,) = make_plan(fluid.default_main_program().global_block(), frozenset()).pieces
    assert piece.where is Where.COMPILED


def test_shapes_that_do_not_fit_are_errors():
    rois = data("rois", [-1, 4], lod_level=1)
    with pytest.raises(ValueError, match="levels must be from 1 on, in order, but go from 3 to 2"):
        fluid.layers.distribute_fpn_proposals(rois, 3, 2, 4, 224)
    out = fluid.layers.collect_fpn_proposals([rois, rois], [data("score", [-1, 1], lod_level=1)], 2, 3, 5)
    feed = {"rois": sequences(TRUTH, 1, 1), "score": sequences(np.ones((2, 1), "float32"), 1, 1)}
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(ValueError, match="there are regions of 2 levels, but scores of 1"):
        exe.run(feed=feed, fetch_list=[out])


def test_images_that_do_not_agree_are_errors():
    fetches = assigned()
    with pytest.raises(ValueError, match="GtBoxes has 1 sequences, but there are 2 images"):
        run(fetches, truth=sequences(TRUTH, 2))
    with pytest.raises(ValueError, match="IsCrowd must hold sequences"):
        run(fetches, crowd=np.zeros((2, 1), "int32"))


def test_levels_of_different_images_are_an_error():
    names = ("a", "b")
    rois, scores = ([data(n + kind, [-1, w], lod_level=1) for n in names] for kind, w in (("r", 4), ("s", 1)))
    out = fluid.layers.collect_fpn_proposals(rois, scores, 2, 3, 5)
    points = np.ones((2, 1), "float32")
    feed = {"ar": sequences(TRUTH, 1, 1), "br": sequences(TRUTH, 2), "as": sequences(points, 1, 1)}
    with pytest.raises(ValueError, match=r"must be of as many images on each level, but are of \[1, 2\]"):
        fluid.Executor(fluid.CPUPlace()).run(feed={**feed, "bs": sequences(points, 2)}, fetch_list=[out])


def test_scores_that_do_not_fit_their_anchors_are_an_error():
    fed = data("score", [1, 2, 2, 2]), data("code", [1, 8, 2, 2]), data("size", [1, 3]), data("a", [2, 2, 3, 4])
    out = fluid.layers.generate_proposals(*fed, fed[3])
    feed = {each.name: np.ones(each.shape, "float32") for each in fed}
    with pytest.raises(ValueError, match="there are 8 scores in an image, but 12 anchors and 12 variances"):
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(out), return_numpy=False)
    feed["size"] = np.ones((1, 2), "float32")


MASKS = {
    "info": np.ones((1, 3), "float32"),
    "kind": sequences(np.ones((1, 1), "int32"), 1),
    "crowd": sequences(np.zeros((1, 1), "int32"), 1),
    "shape": fluid.create_lod_tensor(np.float32([[0, 0], [4, 0], [0, 4]]), [[1], [1], [3]], fluid.CPUPlace()),
    "rois": sequences(np.float32([[0, 0, 4, 4]]), 1),
    "label": sequences(np.ones((1, 1), "int32"), 1),
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"shape": sequences(np.ones((3, 2), "float32"), 3)}, r"it has 1 levels and shape \[3, 2\]"),
        ({"kind": sequences(np.ones((2, 1), "int32"), 1, 1)}, "GtClasses has 2 sequences, but there are 1 images"),
        (
            {"kind": sequences(np.ones((2, 1), "int32"), 2), "crowd": sequences(np.ones((2, 1), "int32"), 2)},
            "an image has 2 objects in GtClasses, but polygons of 1 in GtSegms",
        ),
        (
            {"shape": fluid.create_lod_tensor(np.ones((6, 2), "float32"), [[1, 1], [1, 1], [3, 3]], fluid.CPUPlace())},
            "GtSegms has polygons of 2 images, but there are 1",
        ),
        ({"info": np.ones((1, 2), "float32")}, "ImInfo must have rows of height, width and scale"),
    ],
)
def test_masks_that_cannot_be_drawn_are_an_error(change, problem):
    shapes = {"info": [-1, -1], "kind": [-1, 1], "crowd": [-1, 1], "shape": [-1, 2], "rois": [-1, 4], "label": [-1, 1]}
    fed = {
        name: data(name, shape, dtype="int32" if name in ("kind", "crowd", "label") else "float32", lod_level=1)
        for name, shape in shapes.items()
    }
    out = fluid.layers.generate_mask_labels(*fed.values(), num_classes=2, resolution=4)
    with pytest.raises(ValueError, match=problem):
        fluid.Executor(fluid.CPUPlace()).run(feed={**MASKS, **change}, fetch_list=list(out), return_numpy=False)


def test_crowds_have_no_masks():
    fed = [data("info", [-1, 3])]
    for name, width in (("kind", 1), ("crowd", 1), ("shape", 2), ("rois", 4), ("label", 1)):
        dtype = "float32" if name in ("shape", "rois") else "int32"
        fed.append(data(name, [-1, width], dtype=dtype, lod_level=3 if name == "shape" else 1))
    masks = fluid.layers.generate_mask_labels(*fed, num_classes=2, resolution=4)
    feed = {**MASKS, "crowd": sequences(np.ones((1, 1), "int32"), 1), "label": sequences(np.zeros((1, 1), "int32"), 1)}
    *_, found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(masks), return_numpy=False)
    assert np.array(found).tolist() == [[-1] * 32]
