"""Running programs: feeds, fetches, state, randomness, widths, and the errors users meet."""

from __future__ import annotations

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.errors import FeedError, FetchError, OpError, OutOfRangeError, RecompileWarning, UninitializedError


def regression():
    x = fluid.layers.data("x", [13])
    y = fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.01).minimize(loss)
    return loss


def batch(size=8):
    rng = np.random.RandomState(0)
    return {"x": rng.randn(size, 13).astype("float32"), "y": rng.randn(size, 1).astype("float32")}


def started():
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def test_training_lowers_the_loss():
    loss = regression()
    exe = started()
    losses = [exe.run(feed=batch(), fetch_list=[loss])[0].item() for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]


def test_compiled_and_eager_execution_agree():
    loss = regression()
    results = []
    for eager in (False, True):
        scope = fluid.Scope()
        exe = refluid.executor.Executor(eager=eager)
        fluid.default_startup_program().random_seed = 3
        exe.run(fluid.default_startup_program(), scope=scope)
        results.append([exe.run(feed=batch(), fetch_list=[loss], scope=scope)[0] for _ in range(3)])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_a_step_is_compiled_once_per_shape():
    loss = regression()
    exe = started()
    exe.run(feed=batch(), fetch_list=[loss])
    before = exe.compilations
    for _ in range(3):
        exe.run(feed=batch(), fetch_list=[loss.name])
    assert exe.compilations == before
    exe.run(feed=batch(5), fetch_list=[loss])
    assert exe.compilations == before + 1


def test_unexpected_recompiles_name_their_cause():
    loss = regression()
    exe = started()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecompileWarning)
        exe.run(feed=batch(8), fetch_list=[loss])
        exe.run(feed=batch(5), fetch_list=[loss])  # the last batch of an epoch is no surprise
    with pytest.warns(RecompileWarning, match=r"feed x has shape \[6, 13\], after \[5, 13\]"):
        exe.run(feed=batch(6), fetch_list=[loss])
    fluid.layers.scale(loss, 2.0)
    with pytest.warns(RecompileWarning, match="changed after it had been compiled"):
        exe.run(feed=batch(8), fetch_list=[loss])


def test_state_lives_in_the_scope():
    regression()
    exe = started()
    tensor = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    before = np.array(tensor)
    exe.run(feed=batch())
    assert not np.allclose(np.array(tensor), before)
    tensor.set(np.zeros((13, 1), "float32"), fluid.CPUPlace())
    assert not np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()).any()


def test_a_set_may_name_one_variable_to_fetch():
    loss = regression()
    assert started().run(feed=batch(), fetch_list={loss})[0].shape == (1,)
    with pytest.raises(TypeError, match="fetch_list must be a list of variables or names, not set"):
        started().run(feed=batch(), fetch_list={loss, "fc_0.w_0"})


def test_fetched_arrays_are_the_users_own():
    regression()
    exe = started()
    (weight,) = exe.run(feed=batch(), fetch_list=["fc_0.w_0"])
    weight += 100.0
    assert np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()).max() < 50


def test_a_fed_array_may_be_changed_after_the_run():
    x = fluid.layers.data("x", [1000])
    total = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
    fluid.layers.assign(fluid.layers.reduce_sum(x), total)
    exe = started()
    fed = np.ones((1000, 1000), "float32")
    exe.run(feed={"x": fed})
    fed[:] = 0
    assert np.array(fluid.global_scope().find_var("total").get_tensor()).item() == 1e6


def test_64_bit_values_keep_their_width_and_jax_keeps_its_setting():
    x = fluid.layers.data("x", [2], dtype="int64")
    y = fluid.layers.data("y", [2], dtype="float64")
    outputs = [x + x, fluid.layers.scale(y, 3.0)]
    fetched = started().run(feed={"x": np.full((1, 2), 2**40), "y": np.full((1, 2), 1 / 3)}, fetch_list=outputs)
    assert [value.dtype for value in fetched] == [np.int64, np.float64]
    assert fetched[0][0, 0] == 2**41
    assert fetched[1][0, 0] == 1.0
    assert jnp.arange(3).dtype == jnp.int32


def test_lists_scalars_tensors_and_jax_arrays_can_be_fed():
    x = fluid.layers.data("x", [2], dtype="float32")
    out = fluid.layers.scale(x, 2.0)
    tensor = fluid.LoDTensor()
    tensor.set(np.ones((1, 2), "float32"), fluid.CPUPlace())
    exe = started()
    for value in ([[1, 1]], tensor, jnp.ones((1, 2)), np.ones((1, 2), "float32")):
        np.testing.assert_array_equal(exe.run(feed={"x": value}, fetch_list=[out])[0], [[2.0, 2.0]])


def test_runs_with_a_seed_repeat_and_steps_differ():
    def masks():
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 5
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            x = fluid.layers.data("x", [64])
            out = fluid.layers.dropout(x, 0.5)
            exe = fluid.Executor(fluid.CPUPlace())
            return [exe.run(main, feed={"x": np.ones((4, 64), "float32")}, fetch_list=[out])[0] for _ in range(2)]

    first, again = masks(), masks()
    np.testing.assert_array_equal(first, again)
    assert (first[0] != first[1]).any()


def test_two_parameters_of_one_shape_start_differently_and_startup_repeats():
    x = fluid.layers.data("x", [16])
    fluid.layers.fc(fluid.layers.fc(x, 16, bias_attr=False), 16, bias_attr=False)
    fluid.default_startup_program().random_seed = 9
    exe = started()
    a, b = (np.array(fluid.global_scope().find_var(f"fc_{i}.w_0").get_tensor()) for i in (0, 1))
    assert (a != b).any()
    exe.run(fluid.default_startup_program())
    np.testing.assert_array_equal(a, np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()))


def test_without_a_seed_every_scope_starts_differently():
    x = fluid.layers.data("x", [16])
    fluid.layers.fc(x, 16, bias_attr=False)
    values = []
    for _ in range(2):
        with fluid.scope_guard(fluid.Scope()):
            started()
            values.append(np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()))
    assert (values[0] != values[1]).any()


def test_a_program_becomes_a_pure_jax_function():
    loss = regression()
    exe = started()
    function, state = refluid.to_jax(fluid.default_main_program(), ["x", "y"], [loss])
    (value,), new_state = jax.jit(function)(state, **batch())
    weights = np.array(new_state["fc_0.w_0"])
    (expected,) = exe.run(feed=batch(), fetch_list=[loss])
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(weights, np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()), rtol=1e-6)


def test_child_scopes_see_their_parents():
    scope = fluid.Scope()
    scope.var("a").get_tensor().set(np.array([1.0], "float32"), fluid.CPUPlace())
    kid = scope.new_scope()
    assert kid.find_var("a") is scope.find_var("a")
    kid.var("b")
    assert scope.find_var("b") is None
    scope.drop_kids()


def test_wrong_feed_dtype():
    loss = regression()
    feed = batch()
    feed["x"] = feed["x"].astype("float64")
    with pytest.raises(
        FeedError, match=r"x: expected float32\[-1, 13\], got float64\[8, 13\](.|\n)*astype\('float32'\)"
    ):
        started().run(feed=feed, fetch_list=[loss])


def test_a_wrong_shape_fed_to_fluid_data_is_refused():
    x = fluid.data("x", [None, 13])
    out = fluid.layers.scale(x, 2.0)
    with pytest.raises(FeedError, match=r"feed x: expected shape \[-1, 13\], got \[8, 12\]"):
        started().run(feed={"x": batch()["x"][:, :12]}, fetch_list=[out])


def test_a_wrong_shape_fed_to_layers_data_is_named_where_an_op_fails():
    loss = regression()
    feed = batch()
    feed["x"] = feed["x"][:, :12]
    with pytest.raises(OpError, match=r"x  float32\[8, 12\](.|\n)*x was declared \[-1, 13\] and fed \[8, 12\]"):
        started().run(feed=feed, fetch_list=[loss])


def test_layers_data_takes_any_shape_the_ops_can_use():
    x = fluid.layers.data("x", [4, 3], append_batch_size=False)
    out = fluid.layers.scale(x, 2.0)
    assert started().run(feed={"x": np.ones((7, 5), "f")}, fetch_list=[out])[0].shape == (7, 5)


def test_a_model_declared_for_six_rows_trains_on_eight():
    x = fluid.layers.data("x", [6, 13], append_batch_size=False)
    y = fluid.layers.data("y", [6, 1], append_batch_size=False)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.01).minimize(loss)
    exe = started()
    losses = [exe.run(feed=batch(8), fetch_list=[loss])[0].item() for _ in range(2)]
    assert losses[1] < losses[0]


def test_layers_data_takes_another_width_where_no_parameter_meets_it():
    out = fluid.layers.scale(fluid.layers.data("x", [4]), 2.0)
    (doubled,) = started().run(feed={"x": np.full((2, 4), 1 / 3)}, fetch_list=[out])
    assert doubled.dtype == np.float64
    assert doubled[0, 0] == 2 / 3


@pytest.mark.parametrize("value", [None, [[1.0, None]], "1", [["1", "2"]], {"a": 1}])
def test_what_is_no_array_is_refused(value):
    out = fluid.layers.scale(fluid.layers.data("x", [2]), 2.0)
    expected = r"feed x: expected an array, .*LoDTensor.*, got .* of type|cannot be converted to an array of float32"
    with pytest.raises((TypeError, FeedError), match=expected):
        started().run(feed={"x": value}, fetch_list=[out])


def test_feeding_none_names_the_feed():
    out = fluid.layers.scale(fluid.layers.data("x", [2]), 2.0)
    with pytest.raises(TypeError, match=r"feed x: expected an array, .*, got None of type NoneType"):
        started().run(feed={"x": None}, fetch_list=[out])


def test_the_package_lists_what_users_call():
    names = "OptaxOptimizer __version__ applied_steps export flax_layer from_pytree jax_layer load save_delta".split()
    assert dir(refluid) == [*names, *"shard_parameters shrink_tables table_options to_flax to_jax to_pytree".split()]
    assert all(callable(getattr(refluid, name)) for name in refluid.__all__)


def test_integers_may_be_fed_where_no_dtype_was_declared():
    label = fluid.layers.data("label", [1])
    probability = fluid.layers.data("probability", [3])
    loss = fluid.layers.cross_entropy(probability, label)
    feed = {"label": np.array([[2]]), "probability": np.array([[0.2, 0.3, 0.5]], "float32")}
    np.testing.assert_allclose(started().run(feed=feed, fetch_list=[loss])[0], [[-np.log(0.5)]], rtol=1e-6)


def test_missing_feed():
    loss = regression()
    with pytest.raises(FeedError, match=r"feed y: it must be fed: .* reads it(.|\n)*add 'y' to the feed"):
        started().run(feed={"x": batch()["x"]}, fetch_list=[loss])


def test_an_unknown_feed_is_ignored_with_a_warning_that_names_the_nearest_variable():
    x = fluid.layers.data("x", [2])
    feed = {"x": np.ones((1, 2), "float32"), "xx": np.ones((3, 2), "float32")}
    with pytest.warns(UserWarning, match="feed xx: the program has no such variable, so it is ignored; did you mean x"):
        found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[x * 2.0])[0]
    assert found.tolist() == [[2, 2]]


def test_what_parallel_feeding_gives_can_be_fed():
    x = fluid.layers.data("x", [2])
    feeds = list(fluid.DataFeeder([x], fluid.CPUPlace()).feed_parallel([[([1.0, 2.0],), ([3.0, 4.0],)]], 1))
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feeds, fetch_list=[x * 2.0])[0]
    assert found.tolist() == [[2, 4], [6, 8]]


def test_wrong_feeds_and_fetches_are_what_fluid_calls_enforce_not_met():
    regression()
    for run in ({"feed": {}, "fetch_list": ["mean_0.tmp_0"]}, {"feed": batch(), "fetch_list": ["nothing"]}):
        with pytest.raises(fluid.core.EnforceNotMet):
            started().run(**run)


def test_sequences_can_be_fed_to_a_variable_of_fixed_size():
    x = fluid.data("x", [3, 1], "float32", lod_level=1)
    rows = fluid.create_lod_tensor(np.ones((3, 1), "float32"), [[2, 1]], fluid.CPUPlace())
    total = fluid.layers.sequence_pool(x, "sum")
    longer = fluid.create_lod_tensor(np.ones((4, 1), "float32"), [[2, 2]], fluid.CPUPlace())
    with pytest.raises(FeedError, match=r"expected shape \[3, 1\], got \[4, 1\]"):
        fluid.Executor(fluid.CPUPlace()).run(feed={"x": longer}, fetch_list=[total])
    assert fluid.Executor(fluid.CPUPlace()).run(feed={"x": rows}, fetch_list=[total])[0].tolist() == [[2], [1]]


def test_unknown_fetch():
    regression()
    with pytest.raises(FetchError, match="fetch mean_0.tmp_1: the program has no such variable(.|\n)*mean_0.tmp_0"):
        started().run(feed=batch(), fetch_list=["mean_0.tmp_1"])


def test_uninitialised_parameters():
    loss = regression()
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(UninitializedError, match="fc_0.w_0 has no value, but mul (.|\n)*run the startup program"):
        exe.run(feed=batch(), fetch_list=[loss])


def test_shapes_that_only_meet_at_run_time():
    x = fluid.layers.data("x", [-1, 4], append_batch_size=False)
    y = fluid.layers.data("y", [-1, 4], append_batch_size=False)
    out = fluid.layers.elementwise_add(x, y)
    with pytest.raises(OpError) as caught:
        started().run(feed={"x": np.ones((2, 4), "f"), "y": np.ones((3, 4), "f")}, fetch_list=[out])
    assert "x  float32[2, 4]" in str(caught.value)
    assert "y  float32[3, 4]" in str(caught.value)
    assert "fluid.layers.elementwise_add(x, y)" in str(caught.value)


def embedding_model():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    emb = fluid.layers.embedding(ids, [10, 4])
    loss = fluid.layers.mean(emb)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def test_a_fed_id_out_of_range_is_named_and_nothing_is_updated():
    loss = embedding_model()
    exe = started()
    table = fluid.global_scope().find_var("embedding_0.w_0").get_tensor()
    before = np.array(table)
    for bad in (10, -1):
        with pytest.raises(OutOfRangeError, match=rf"id {bad} at \[1, 0\] of Ids \(ids\) is not in \[0, 10\)"):
            exe.run(feed={"ids": np.array([[3], [bad]])}, fetch_list=[loss])
    np.testing.assert_array_equal(np.array(table), before)
    exe.run(feed={"ids": np.array([[3], [4]])}, fetch_list=[loss])


def test_a_computed_id_out_of_range_is_found_and_nothing_is_updated():
    ids = fluid.layers.data("ids", [1], dtype="int64")
    emb = fluid.layers.embedding(ids * 2, [10, 4])
    loss = fluid.layers.mean(emb)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = started()
    table = fluid.global_scope().find_var("embedding_0.w_0").get_tensor()
    before = np.array(table)
    with pytest.raises(OutOfRangeError, match=r"lookup_table: a computed id of Ids .* is not in \[0, 10\)"):
        exe.run(feed={"ids": np.array([[3], [7]])}, fetch_list=[loss])
    np.testing.assert_array_equal(np.array(table), before)
    exe.run(feed={"ids": np.array([[3], [4]])}, fetch_list=[loss])
    assert (np.array(table) != before).any()


def test_check_nan_inf_names_variable_and_writer():
    x = fluid.layers.data("x", [1])
    out = fluid.layers.log(x)
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(FloatingPointError, match=rf"{out.name} holds NaN or Inf, written by log"):
            started().run(feed={"x": -np.ones((1, 1), "f")}, fetch_list=[out])
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})


def test_a_gpu_place_without_a_gpu_says_so():
    with pytest.raises(RuntimeError, match="CUDAPlace\\(0\\): JAX sees no GPU"):
        fluid.CUDAPlace(0)


def test_a_closed_executor_does_not_run():
    exe = fluid.Executor(fluid.CPUPlace())
    exe.close()
    with pytest.raises(RuntimeError, match="closed"):
        exe.run(fluid.default_startup_program())


def test_single_ops_run_on_scope_variables():
    from paddle.fluid.op import Operator

    scope = fluid.Scope()
    scope.var("x").get_tensor().set(np.array([1.0, 2.0], "float32"), fluid.CPUPlace())
    Operator("scale", X="x", Out="y", scale=3.0).run(scope, fluid.CPUPlace())
    np.testing.assert_allclose(np.array(scope.find_var("y").get_tensor()), [3.0, 6.0])


def test_variables_of_a_scope_hold_sequences():
    from paddle.fluid.op import Operator

    scope, place = fluid.Scope(), fluid.CPUPlace()
    x = scope.var("x").get_tensor()
    x.set(np.zeros([5, 1], "float32"), place)
    x.set_recursive_sequence_lengths([[2, 3]])
    Operator("sequence_softmax", X="x", Out="y").run(scope, place)
    y = scope.find_var("y").get_tensor()
    assert (y.lod(), y.shape(), len(y)) == ([[0, 2, 5]], [5, 1], 5)
    np.testing.assert_allclose(np.array(y)[:, 0], [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3], rtol=1e-6)

    Operator("sequence_pool", X="y", Out="z", pooltype="SUM").run(scope, place)
    np.testing.assert_allclose(scope.find_var("z").get_tensor(), [[1], [1]], rtol=1e-6)
    x.set_lod([[0, 1, 5]])
    Operator("sequence_softmax", X="x", Out="y").run(scope, place)
    assert y.recursive_sequence_lengths() == [[1, 4]]


def test_a_persistable_variable_keeps_the_sequences_that_a_step_writes(tmp_path):
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.layers.data("x", [1], lod_level=1)
        y = fluid.layers.sequence_softmax(x)
        y.persistable = True
    exe = fluid.Executor(fluid.CPUPlace())
    fed = fluid.create_lod_tensor(np.zeros([5, 1], "float32"), [[2, 3]], fluid.CPUPlace())
    (fetched,) = exe.run(main, feed={"x": fed}, fetch_list=[y], return_numpy=False)
    held = fluid.global_scope().find_var(y.name).get_tensor()
    assert held.lod() == fetched.lod() == [[0, 2, 5]]
    np.testing.assert_array_equal(held, fetched)

    later = fluid.Program()
    with fluid.program_guard(later):
        kept = later.global_block().create_var(name=y.name, shape=[-1, 1], dtype="float32", lod_level=1)
        kept.persistable = True
        sums = fluid.layers.sequence_pool(kept, "sum")
    for _ in range(2):  # what was looked at, and what a step has left
        np.testing.assert_allclose(exe.run(later, fetch_list=[sums])[0], [[1], [1]], rtol=1e-6)
        exe.run(main, feed={"x": fed})
    fluid.io.save_vars(exe, str(tmp_path), main, vars=[y])
    fluid.global_scope().erase([y.name])
    fluid.io.load_vars(exe, str(tmp_path), main, vars=[y])
    np.testing.assert_allclose(exe.run(later, fetch_list=[sums])[0], [[1], [1]], rtol=1e-6)


def test_a_fetched_number_is_an_array_and_a_number():
    total = fluid.layers.reduce_sum(fluid.layers.data("x", [2]))
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.array([[1.5, 2.0]], "float32")}
    for _ in range(2):  # the first run, and the short way of those after it
        (value,) = exe.run(feed=feed, fetch_list=[total])
        assert isinstance(value, np.ndarray) and value.shape == (1,) and value.dtype == np.float32
        assert float(value) == 3.5 and int(value) == 3 and f"{float(value):.1f}" == "3.5"
        assert "%f" % value == "3.500000" and "%d" % value == "3"  # noqa: UP031 - as scripts write it
        assert (str(value), repr(value)) == ("[3.5]", "array([3.5], dtype=float32)")
        assert type(value[0]) is np.float32 and type(np.mean(value)) is np.float32
        assert type(pickle.loads(pickle.dumps(value))) is np.ndarray
        value += 1
        np.testing.assert_array_equal(value, [4.5])


def test_what_is_computed_from_a_fetched_number_is_a_number_too():
    value = fluid.Executor(fluid.CPUPlace()).run(
        feed={"x": np.array([[1.5, 2.0]], "float32")},
        fetch_list=[fluid.layers.reduce_sum(fluid.layers.data("x", [2]))],
    )[0]
    total = 0.0
    for _ in range(2):
        total += value
    assert "%.2f" % (total / 2) == "3.50" and float(np.exp(total * 0)) == 1
    assert [float(part) for part in divmod(value, 2)] == [1, 1.5]
    assert type(value + np.ones((1, 2))) is np.ndarray
    accuracy = fluid.metrics.Accuracy()
    accuracy.update(value / 7, 2)
    assert "%.1f" % accuracy.eval() == "0.5"  # noqa: UP031


def test_more_than_one_element_is_no_number():
    exe = fluid.Executor(fluid.CPUPlace())
    (value,) = exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[fluid.layers.data("x", [2])])
    with pytest.raises(TypeError):
        float(value)


def test_sequences_that_persist_are_read_from_the_scope_and_saved(tmp_path):
    x = fluid.layers.data("x", [2], lod_level=1)
    doubled = fluid.layers.scale(x, 2.0)
    doubled.persistable = True
    exe = fluid.Executor(fluid.CPUPlace())
    rows = np.arange(6, dtype="float32").reshape(3, 2)
    held = fluid.global_scope().var(doubled.name).get_tensor()
    for lengths in ([2, 1], [3]):
        exe.run(feed={"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())})
        assert held.recursive_sequence_lengths() == [lengths] and held.shape() == [3, 2] and len(held) == 3
        np.testing.assert_array_equal(np.array(held), 2 * rows)
        assert held.has_valid_recursive_sequence_lengths() and "lod: [[0" in str(held) and held[2].tolist() == [8, 10]
    fluid.io.save_persistables(exe, str(tmp_path))
    held.set(np.zeros((1, 2), "float32"))
    fluid.io.load_persistables(exe, str(tmp_path))
    found = fluid.global_scope().find_var(doubled.name).get_tensor()
    assert found.recursive_sequence_lengths() == [[3]] and np.array(found).tolist() == (2 * rows).tolist()
