"""Matching of priors with objects: what golden cases cannot show, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.lowering.plan import Where, make_plan


def data(name, shape, **options):
    return fluid.layers.data(name, shape, append_batch_size=False, **options)


def append(type, inputs, outputs, **attrs):
    block = fluid.default_main_program().current_block()
    made = {slot: block.create_var(name=slot) for slot in outputs.split()}
    block.append_op(type=type, inputs=inputs, outputs=made, attrs=attrs)
    return list(made.values())


def run(fetches, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetches)


def sequences(array, *lengths):
    return fluid.create_lod_tensor(array, [list(lengths)], fluid.CPUPlace())


def test_an_image_without_objects_matches_nothing():
    matches, distance = fluid.layers.bipartite_match(data("x", [-1, 3], lod_level=1), "per_prediction")
    found, close = run([matches, distance], x=sequences(np.eye(2, 3, dtype="float32"), 0, 2, 0))
    assert found.tolist() == [[-1] * 3, [0, 1, -1], [-1] * 3]
    assert close.tolist() == [[0] * 3, [1, 1, 0], [0] * 3]


def test_negatives_of_targets_with_several_columns_count():
    x, matches = data("x", [-1, 1, 2], lod_level=1), data("m", [2, 3], dtype="int32")
    out = fluid.layers.target_assign(x, matches, data("n", [-1, 1], dtype="int32", lod_level=1), 9)
    feed = {"x": sequences(np.ones((2, 1, 2), "float32"), 1, 1), "m": np.array([[0, -1, -1], [-1, 0, -1]], "int32")}
    target, weight = run(out, n=sequences(np.array([[2], [0]], "int32"), 1, 1), **feed)
    assert target[..., 0].tolist() == [[1, 9, 9], [9, 1, 9]]
    assert weight[..., 0].tolist() == [[1, 0, 1], [1, 1, 0]]


def test_a_loss_of_an_ssd_and_its_gradient_are_one_compiled_piece():
    place, score = data("place", [-1, 4, 4]), data("score", [-1, 4, 3])
    box, label = data("box", [-1, 4], lod_level=1), data("label", [-1, 1], dtype="int32", lod_level=1)
    loss = fluid.layers.ssd_loss(place, fluid.layers.fc(score, 3, 2), box, label, data("prior", [4, 4]), [0.1] * 4)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(loss))
    (piece,) = make_plan(fluid.default_main_program().global_block(), frozenset()).pieces
    assert piece.where is Where.COMPILED


def test_wrong_arguments_are_errors():
    x = data("x", [3, 4])
    with pytest.raises(ValueError, match="DistMat must have 2 dims, objects and priors, but has shape"):
        fluid.layers.bipartite_match(data("y", [3, 4, 5]))
    with pytest.raises(ValueError, match="X must have 3 dims and MatchIndices 2, but their shapes are"):
        fluid.layers.target_assign(x, x)
    with pytest.raises(ValueError, match="ssd_loss: mining_type must be max_negative, not 'hard_example'"):
        fluid.layers.ssd_loss(x, x, x, x, x, mining_type="hard_example")


@pytest.mark.parametrize(
    ("attrs", "problem"),
    [
        ({"mining_type": "random"}, "mining_type must be max_negative or hard_example, not 'random'"),
        ({"mining_type": "hard_example"}, "sample_size must be positive to mine hard examples, not 0"),
    ],
)
def test_negatives_that_cannot_be_mined_are_an_error(attrs, problem):
    x = data("x", [1, 2])
    inputs = {"ClsLoss": x, "MatchIndices": data("m", [1, 2], dtype="int32"), "MatchDist": x}
    out = append("mine_hard_examples", inputs, "NegIndices UpdatedMatchIndices", **attrs)
    with pytest.raises(ValueError, match=problem):
        run(out, x=np.ones((1, 2), "float32"), m=np.zeros((1, 2), "int32"))


def test_values_that_do_not_fit_are_errors():
    matches = fluid.layers.bipartite_match(data("x", [2, 2]), match_type="greedy")
    with pytest.raises(ValueError, match="match_type must be bipartite or per_prediction, not 'greedy'"):
        run(matches, x=np.ones((2, 2), "float32"))
    with fluid.program_guard(fluid.Program()):
        out = fluid.layers.target_assign(data("x", [-1, 1, 2], lod_level=1), data("m", [3, 2], dtype="int32"))
        with pytest.raises(ValueError, match="X has 2 sequences, but MatchIndices is for 3 images"):
            run(out, x=sequences(np.ones((2, 1, 2), "float32"), 1, 1), m=np.zeros((3, 2), "int32"))
