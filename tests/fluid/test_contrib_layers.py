"""Layers of fluid.contrib: programs and mistakes that golden cases do not show."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid

contrib = fluid.contrib.layers


def described():
    """The parameters of the program, with shapes."""
    return {p.name: tuple(p.shape) for p in fluid.default_main_program().global_block().all_parameters()}


def test_layers_of_item_trees_have_the_parameters_and_shapes_of_real_fluid():
    x = fluid.layers.data("x", [1], dtype="int32")
    child, mask = contrib.tdm_child(x, 6, 2, param_attr=fluid.ParamAttr(name="tree"))
    assert [tuple(child.shape), tuple(mask.shape)] == [(-1, 1, 2)] * 2
    nodes, labels, masks = contrib.tdm_sampler(x, [0, 1, 2], [2, 4, 5], 6)
    assert [[tuple(v.shape) for v in each] for each in (nodes, labels, masks)] == [[(-1, n, 1) for n in (1, 2, 3)]] * 3
    one = contrib.tdm_sampler(x, [0, 1, 2], [2, 4, 5], 6, output_positive=False, output_list=False, dtype="int64")
    assert [tuple(v.shape) for v in one] == [(-1, 3)] * 3
    assert described() == {
        "tree": (6, 5),
        **{f"tdm_sampler_{i}.w_0": (6, 3) for i in range(2)},
        **{f"tdm_sampler_{i}.w_1": (11, 1) for i in range(2)},
    }
    sampler = next(op for op in fluid.default_main_program().global_block().ops if op.type == "tdm_sampler")
    assert sampler.attr("layer_offset_lod") == [0, 2, 6, 11]


def test_children_and_samples_of_a_tree_are_found():
    x = fluid.layers.data("x", [1], dtype="int32")
    tree = np.int32([[0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [7, 1, 0, 0, 0], [8, 2, 1, 0, 0], [9, 2, 1, 0, 0]])

    def given(name, value):
        return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(np.int32(value)))

    child, mask = contrib.tdm_child(x, 5, 2, param_attr=given("tree", tree))
    paths, layers = given("paths", [[1, 3], [1, 4]]), given("layers", [[1], [2], [3], [4]])
    nodes, _, _ = contrib.tdm_sampler(x, [1, 1], [2, 2], 2, tree_travel_attr=paths, tree_layer_attr=layers)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    found = executor.run(feed={"x": np.int32([[1], [0]])}, fetch_list=[child, mask, *nodes])
    np.testing.assert_array_equal(found[0], [[[3, 4]], [[0, 0]]])
    np.testing.assert_array_equal(found[1], [[[1, 1]], [[0, 0]]])
    np.testing.assert_array_equal(found[2][..., 0], [[1, 2], [1, 2]])  # only one other node is there to be drawn
    np.testing.assert_array_equal(found[3][..., 0], [[4, 3], [3, 4]])


def test_rank_attention_has_the_parameter_of_real_fluid():
    x, ranks = fluid.layers.data("x", [2]), fluid.layers.data("ranks", [7], dtype="int32")
    out = contrib.rank_attention(x, ranks, [18, 3], fluid.ParamAttr(name="weights"))
    assert (tuple(out.shape), described()) == ((-1, 3), {"weights": (18, 3)})


def test_shuffles_follow_their_seed_and_differ_from_run_to_run():
    x = fluid.layers.data("x", [1])
    out = contrib.shuffle_batch(x, seed=5)
    rows = np.arange(20, dtype="float32").reshape(-1, 1)
    runs = []
    for _ in range(2):
        executor, scope = fluid.Executor(), fluid.Scope()
        with fluid.scope_guard(scope):
            executor.run(fluid.default_startup_program())
            runs.append([executor.run(feed={"x": rows}, fetch_list=[out])[0].ravel().tolist() for _ in range(2)])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]
    assert sorted(runs[0][0]) == list(range(20))


def test_sums_for_metrics_of_clicks_go_on_from_batch_to_batch():
    x, y = fluid.layers.data("x", [1]), fluid.layers.data("y", [1])
    sums = contrib.ctr_metric_bundle(x, y)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.float32([[0.5], [1.0]]), "y": np.float32([[1], [0]])}
    for _ in range(2):
        found = executor.run(feed=feed, fetch_list=list(sums))
    squared, absolute, predicted, _, clicks, samples = (value.item() for value in found)
    assert [squared, absolute, predicted, clicks, samples] == [2.5, 3.0, 3.0, 2.0, 4.0]


def test_a_unit_has_the_methods_of_a_layer():
    unit, inner = contrib.BasicGRUUnit("outer", 2), contrib.BasicLSTMUnit("inner", 2)
    assert (unit.full_name(), unit.parameters()) == ("outer/BasicGRUUnit_0", [])
    x, hidden = fluid.layers.data("x", [3]), fluid.layers.data("hidden", [2])
    out = unit.forward(x, hidden)
    assert [p.name.partition(".")[2] for p in unit.parameters()] == ["w_0", "w_1", "b_0", "b_1"]
    assert unit.add_sublayer("inner", inner) is inner
    inner(x, hidden, hidden)
    assert unit.sublayers() == [inner]
    assert list(unit.state_dict()) == [p.name for p in unit.parameters(False)] + list(inner.state_dict())
    unit.eval()
    assert not inner.training
    unit.train()
    assert inner.training
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    unit.load_dict({p.name: np.zeros(p.shape, "float32") for p in unit.parameters()})
    unit.clear_gradients()
    feed = {"x": np.ones((1, 3), "float32"), "hidden": np.ones((1, 2), "float32")}
    np.testing.assert_allclose(executor.run(feed=feed, fetch_list=[out])[0], [[0.5, 0.5]])  # half of the old state
    assert unit.create_variable(dtype="float32").name.startswith("outer/BasicGRUUnit_0._generated_var")
    with pytest.raises(ValueError, match="use fluid.gradients or minimize of an optimizer"):
        unit.backward()
    with pytest.raises(TypeError, match="add_sublayer: other must be a Layer, not int"):
        unit.add_sublayer("other", 3)
    with pytest.raises(TypeError, match="add_parameter: weight must be a Parameter, not int"):
        unit.add_parameter("weight", 3)
    with pytest.raises(NotImplementedError, match="a Layer must implement `forward`"):
        type(unit).__mro__[2]("scope", "kind")()


def test_mistakes_are_told():
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [2])
    ids = fluid.layers.data("ids", [1], dtype="int32")
    with pytest.raises(ValueError, match="functor_list must name two functions, not 'relu'"):
        contrib.fused_elemwise_activation(x, x, "relu")
    with pytest.raises(ValueError, match=r"input has shape \[-1, 4\], but label \[-1, 2\]"):
        contrib.ctr_metric_bundle(x, y)
    with pytest.raises(ValueError, match="there are 2 numbers of samples for 3 layers"):
        contrib.tdm_sampler(ids, [1, 1], [2, 4, 5], 6)
    with pytest.raises(ValueError, match="4 other nodes cannot be drawn from layer 1, which has 4"):
        contrib.tdm_sampler(ids, [1, 4, 1], [2, 4, 5], 6)
    with pytest.raises(ValueError, match="filter_size must be one number or two, not"):
        contrib.var_conv_2d(x, x, x, 1, 1, [1, 2, 3])
    with pytest.raises(TypeError, match="input"):
        contrib.search_pyramid_hash(x, 4, 10, 3, 2, 0.0, True, False, 0, 0, 1, 0.1)
