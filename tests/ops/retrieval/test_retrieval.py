"""Ops of search and recommendation where real Fluid has no answer for a CPU, a wrong one, or a random one."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import paddle.fluid as fluid
from golden.case import f32
from refluid.ops.core import registry
from refluid.ops.core.gradients import forward_with_pullback


def call(type, arguments, attrs, **services):
    """The outputs of one call of a rule, by slot."""
    listed = {slot: [value] for slot, value in arguments.items()}
    with jax.enable_x64(True):
        return {slot: values[0] for slot, values in registry.lookup(type).call(listed, attrs, **services).items()}


def test_rank_attention_multiplies_by_the_matrix_of_both_ranks():
    x, weight = f32(4, 2), f32(3 * 3 * 2, 5)
    # Samples 0 and 1 were shown together, on places 1 and 3; sample 2 alone, on place 2; sample 3 nowhere.
    ranks = np.int32([[1, 1, 0, 3, 1, 0, 0], [3, 1, 0, 3, 1, 0, 0], [2, 2, 2, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]])
    matrices = weight.reshape(3, 3, 2, 5)
    expected = np.zeros((4, 5), "float32")
    for i, (own, *others) in enumerate(ranks):
        for rank, place in zip(others[::2], others[1::2], strict=True):
            if own > 0 and rank > 0:
                expected[i] += x[place] @ matrices[own - 1, rank - 1]
    arguments = {"X": x, "RankOffset": ranks, "RankParam": weight}
    found = call("rank_attention", arguments, {"MaxRank": 3})
    np.testing.assert_allclose(found["Out"], expected, rtol=1e-5, atol=1e-6)

    _, pullback = forward_with_pullback(
        registry.lookup("rank_attention"), {slot: [value] for slot, value in arguments.items()}, {"MaxRank": 3}
    )
    (of_weight,) = pullback({"Out@GRAD": [np.ones((4, 5), "float32")]})["RankParam@GRAD"]
    of_matrices = np.zeros((3, 3, 2, 5), "float32")
    for own, *others in ranks:
        for rank, place in zip(others[::2], others[1::2], strict=True):
            if own > 0 and rank > 0:
                of_matrices[own - 1, rank - 1] += x[place][:, None]
    np.testing.assert_allclose(of_weight, of_matrices.reshape(-1, 5), rtol=1e-5, atol=1e-6)


TREE = {
    "Travel": np.array([[1, 3, 7], [1, 4, 0], [2, 6, 9]]),
    "Layer": np.arange(1, 10).reshape(-1, 1),
}


@pytest.mark.parametrize("seed", range(3))
def test_tdm_sampler_draws_other_nodes_of_the_layer_once(seed):
    attrs = {"neg_samples_num_list": [1, 3, 1], "layer_offset_lod": [0, 2, 6, 9], "dtype": 3}
    items = np.array([[0], [1], [2], [0]])
    found = call("tdm_sampler", {"X": items, **TREE}, attrs, key=jax.random.key(seed))
    layers = [{1, 2}, {3, 4, 5, 6}, {7, 8, 9}]
    for item, nodes, labels, mask in zip(items[:, 0], found["Out"], found["Labels"], found["Mask"], strict=True):
        for depth, columns in enumerate(([0, 1], [2, 3, 4, 5], [6, 7])):
            own, *others = np.asarray(nodes)[columns]
            path = TREE["Travel"][item, depth]
            assert own == path
            assert np.asarray(labels)[columns].tolist() == [int(path > 0)] + [0] * len(others)
            assert set(np.asarray(mask)[columns]) == {int(path > 0)}
            assert (set(others) <= layers[depth] - {own}) if path else set(others) == {0}
            assert len(set(others)) == len(others) or not path


def test_tdm_sampler_draws_all_nodes_alike():
    attrs = {"neg_samples_num_list": [2], "layer_offset_lod": [0, 5], "dtype": 3, "output_positive": False}
    arguments = {"X": np.zeros((4000, 1), "int64"), "Travel": np.array([[3]]), "Layer": np.arange(1, 6)}
    drawn = np.asarray(call("tdm_sampler", arguments, attrs, key=jax.random.key(0))["Out"])
    for column in drawn.T:
        shares = np.bincount(column, minlength=6) / 4000
        np.testing.assert_allclose(shares, [0, 0.25, 0.25, 0, 0.25, 0.25], atol=0.03)


def test_more_nodes_than_a_layer_has_cannot_be_drawn():
    attrs = {"neg_samples_num_list": [2, 1, 1], "layer_offset_lod": [0, 2, 6, 9]}
    with pytest.raises(ValueError, match="layer 0 has 2 nodes: 2 other nodes cannot be drawn from it"):
        call("tdm_sampler", {"X": np.array([[0]]), **TREE}, attrs, key=jax.random.key(0))


def test_the_gradient_of_tree_conv_is_that_of_its_result():
    edges = np.int32([[[1, 2], [1, 3], [3, 4], [3, 5]], [[1, 2], [2, 3], [0, 0], [0, 0]]])
    nodes, weight = f32(2, 5, 3), f32(3, 3, 2, 2)
    definition, attrs = registry.lookup("tree_conv"), {"max_depth": 3}
    arguments = {"NodesVector": [nodes], "EdgeSet": [edges], "Filter": [weight]}
    outputs, pullback = forward_with_pullback(definition, arguments, attrs)
    slope = f32(2, 5, 2, 2, salt=1)
    (found,) = pullback({"Out@GRAD": [slope]})["NodesVector@GRAD"]
    for place in [(0, 0, 0), (0, 2, 1), (0, 4, 2), (1, 1, 0), (1, 4, 0)]:
        moved = nodes.copy()
        moved[place] += 1  # the result is linear in the nodes
        after = definition.call({**arguments, "NodesVector": [moved]}, attrs)["Out"][0]
        difference = ((np.asarray(after) - np.asarray(outputs["Out"][0])) * slope).sum()
        np.testing.assert_allclose(found[place], difference, rtol=1e-4, atol=1e-5)


def hashed(is_training, drop_out_percent, **arguments):
    ids = fluid.layers.data("ids", [1], dtype="int32", lod_level=1)
    options = {"drop_out_percent": drop_out_percent, "is_training": is_training, "use_filter": False}
    options.update(white_list_len=0, black_list_len=0, seed=1, lr=0.1, param_attr=fluid.initializer.Constant(1.0))
    out = fluid.contrib.layers.search_pyramid_hash(ids, 4, 10, 3, 2, **{**options, **arguments})
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    words = fluid.create_lod_tensor(np.arange(60, dtype="int32").reshape(-1, 1), [[59, 1]], fluid.CPUPlace())
    (found,) = executor.run(feed={"ids": words}, fetch_list=[out], return_numpy=False)
    return np.array(found), found.recursive_sequence_lengths()


def test_pieces_are_dropped_at_random_while_training():
    rows, (lengths,) = hashed(True, 0.5)
    pieces = 58 + 57
    assert lengths[1] == 1
    assert 0.3 * pieces < lengths[0] < 0.7 * pieces
    np.testing.assert_array_equal(rows[:-1], 1)
    np.testing.assert_array_equal(rows[-1], 0)


def test_bloom_filters_of_pieces_are_refused():
    with pytest.raises(ValueError, match="use_filter is not supported"):
        hashed(True, 0.0, use_filter=True)


@pytest.mark.parametrize(
    ("type", "shapes", "attrs", "message"),
    [
        ("match_matrix_tensor", [(3, 2, 4)], {"dim_t": 2}, r"W must have the shape \[3, 2, 3\], not \[3, 2, 4\]"),
        (
            "var_conv_2d",
            [(2, 5)],
            {"InputChannel": 1, "OutputChannel": 2, "KernelH": 3, "KernelW": 3},
            r"W must have the shape \[2, 9\], not \[2, 5\]",
        ),
    ],
)
def test_weights_of_another_shape_are_told(type, shapes, attrs, message):
    block = fluid.default_main_program().global_block()
    width = 3 if type == "match_matrix_tensor" else 1
    x, y = (fluid.layers.data(name, [width], lod_level=1) for name in ("x", "y"))
    inputs = {"X": x, "Y": y} if type == "match_matrix_tensor" else {"X": x, "ROW": x, "COLUMN": y}
    with pytest.raises(ValueError, match=message):
        weight = fluid.layers.assign(f32(*shapes[0]))
        block.append_op(
            type=type, inputs={**inputs, "W": weight}, outputs={"Out": block.create_var(name="out")}, attrs=attrs
        )
        feed = {name: fluid.create_lod_tensor(f32(2, width), [[2]], fluid.CPUPlace()) for name in ("x", "y")}
        fluid.Executor().run(feed=feed, fetch_list=["out"])


def test_ranks_of_another_shape_are_told():
    arguments = {"X": f32(2, 3), "RankOffset": np.zeros((2, 5), "int32"), "RankParam": f32(12, 4)}
    with pytest.raises(ValueError, match=r"with MaxRank 3, RankOffset must have the shape \[2, 7\] and RankParam 27"):
        call("rank_attention", arguments, {"MaxRank": 3})


def test_samples_without_tags_are_told():
    x = fluid.layers.data("x", [2])
    tags = fluid.layers.data("tags", [1], dtype="int64", lod_level=1)
    wanted = fluid.layers.assign(np.array([1]))
    kept, _ = fluid.layers.filter_by_instag(x, tags, wanted, is_lod=False)
    feed = {"x": f32(3, 2), "tags": fluid.create_lod_tensor(np.array([[1], [2]]), [[1, 1]], fluid.CPUPlace())}
    with pytest.raises(ValueError, match="Ins has 3 samples, but Ins_tag has tags of 2"):
        fluid.Executor().run(feed=feed, fetch_list=[kept])
