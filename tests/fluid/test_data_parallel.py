"""Several devices train as one does on the whole batch."""

import jax
import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.errors import FeedError
from refluid.meshes import MeshTarget, SharedDevice

BATCH = 8


def regression(hidden=lambda x: fluid.layers.fc(x, 5, act="tanh")):
    x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden(x), 1), y))


def sgd():
    loss = regression()
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def momentum():
    loss = regression()
    fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return loss


def adam():
    loss = regression()
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.3))
    fluid.optimizer.Adam(0.01, regularization=fluid.regularizer.L2Decay(1e-2)).minimize(loss)
    return loss


def sparse_sequences():
    words, y = fluid.layers.data("words", [1], dtype="int64", lod_level=1), fluid.layers.data("y", [1])
    pooled = fluid.layers.sequence_pool(fluid.layers.embedding(words, [20, 4], is_sparse=True), "sum")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(pooled, 1), y))
    fluid.optimizer.SGD(0.05).minimize(loss)
    return loss


def batches(model, steps):
    random = np.random.RandomState(1)
    for _ in range(steps):
        y = random.rand(BATCH, 1).astype("float32")
        if model not in (sparse_sequences, embedded_words):
            yield {"x": random.rand(BATCH, 6).astype("float32"), "y": y}
            continue
        lengths = random.randint(1, 5, BATCH).tolist()
        words = random.randint(0, 20, (sum(lengths), 1)).astype("int64")
        yield {"words": fluid.create_lod_tensor(words, [lengths], fluid.CPUPlace()), "y": y}


def train(model, devices, steps=5, strategy=None, partitions=None):
    """Fetched losses of all steps, and the parameters afterwards.

    ``devices``: how many, or a mesh; None for a program that is not data-parallel.
    """
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        loss = model()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        program = main
        if partitions is not None:
            refluid.shard_parameters(main, partitions)
        if devices is not None:
            places = fluid.cpu_places(devices) if isinstance(devices, int) else devices
            program = fluid.CompiledProgram(main).with_data_parallel(
                loss_name=loss.name, build_strategy=strategy, places=places
            )
        losses = [exe.run(program, feed=feed, fetch_list=[loss])[0] for feed in batches(model, steps)]
        return losses, [np.array(fluid.global_scope().find_var(p.name).get_tensor()) for p in main.all_parameters()]


@pytest.mark.parametrize("model", [sgd, momentum, adam, sparse_sequences])
def test_devices_follow_one_device_on_the_whole_batch(model):
    losses, parameters = train(model, None, steps=50)
    for devices in (1, 2, 4):
        parallel_losses, found = train(model, devices, steps=50)
        for parameter, expected in zip(found, parameters, strict=True):
            np.testing.assert_allclose(parameter, expected, atol=1e-5)
        assert parallel_losses[0].shape == (devices,)
        np.testing.assert_allclose([each.mean() for each in parallel_losses], np.ravel(losses), atol=1e-5)


def test_more_replicas_than_devices_share_one():
    program = fluid.CompiledProgram(fluid.Program()).with_data_parallel(places=[fluid.CPUPlace()] * BATCH)
    assert isinstance(program._target(), SharedDevice)
    losses, parameters = train(adam, BATCH)
    for parameter, expected in zip(parameters, train(adam, None)[1], strict=True):
        np.testing.assert_allclose(parameter, expected, atol=1e-5)
    assert losses[0].shape == (BATCH,)


def test_reduce_shares_out_the_state_of_optimizers_and_gives_the_same_numbers():
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    for model in (adam, momentum):
        for found, expected in zip(train(model, 2, strategy=strategy)[1], train(model, 2)[1], strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-6)


def test_shared_out_state_is_read_and_loaded_whole(tmp_path):
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    loss, main = momentum(), fluid.default_main_program()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    first, second = batches(momentum, 2)
    shared = two_devices(main, loss_name=loss.name, build_strategy=strategy)
    exe.run(shared, feed=first)
    velocity = fluid.global_scope().find_var("fc_0.w_0_velocity_0").get_tensor()
    assert [shard.data.shape for shard in velocity.value.addressable_shards] == [(3, 5), (3, 5)]
    fluid.io.save_persistables(exe, str(tmp_path), main)
    (fetched,) = exe.run(shared, feed=second, fetch_list=["fc_0.w_0_velocity_0"])
    losses = []
    for places in (1, 4):
        fluid.io.load_persistables(exe, str(tmp_path), main)
        other = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(places))
        losses.append(exe.run(other, feed=second, fetch_list=[loss])[0].mean())
        np.testing.assert_allclose(np.array(velocity), fetched[:6], atol=1e-6)
    assert fetched.shape == (12, 5) and losses[0] == pytest.approx(losses[1])


def test_two_runs_are_bit_identical():
    first, second = train(adam, 4), train(adam, 4)
    np.testing.assert_array_equal(first[0], second[0])
    for one, other in zip(first[1], second[1], strict=True):
        np.testing.assert_array_equal(one, other)


def normalised():
    loss = regression(lambda x: fluid.layers.batch_norm(fluid.layers.fc(x, 4), act="relu"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def test_sync_batch_norm_equals_batch_norm_of_the_whole_batch():
    strategy = fluid.BuildStrategy()
    strategy.sync_batch_norm = True
    parameters = train(normalised, None)[1]
    for found, expected in zip(train(normalised, 4, strategy=strategy)[1], parameters, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert any(np.abs(one - other).max() > 1e-3 for one, other in zip(train(normalised, 4)[1], parameters, strict=True))


def test_gradients_start_from_what_the_strategy_says():
    x = fluid.layers.data("x", [2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False, param_attr="w"))
    fluid.optimizer.SGD(0.0).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    kinds = fluid.BuildStrategy.GradientScaleStrategy

    def run(kind, **feed):
        strategy = fluid.BuildStrategy()
        strategy.gradient_scale_strategy = kind
        program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
            loss.name, strategy, places=fluid.cpu_places(2)
        )
        feed["x"] = np.array([[1, 0], [0, 2]], "float32")
        return exe.run(program, feed=feed, fetch_list=["w@GRAD"], return_merged=False)[0][0].ravel()

    np.testing.assert_allclose(run(kinds.CoeffNumDevice), [0.5, 1.0])
    np.testing.assert_allclose(run(kinds.One), [1.0, 2.0])
    np.testing.assert_allclose(run(kinds.Customized, **{f"{loss.name}@GRAD": np.array([3, 4], "float32")}), [3.0, 8.0])


def two_devices(program, **options):
    return fluid.CompiledProgram(program).with_data_parallel(places=fluid.cpu_places(2), **options)


def test_random_ops_differ_between_devices_and_follow_the_seed():
    program = fluid.default_main_program()
    program.random_seed = 5
    noise = fluid.layers.uniform_random([1, 4])
    exe = fluid.Executor(fluid.CPUPlace())
    first, second = (exe.run(two_devices(program), fetch_list=[noise], scope=fluid.Scope())[0] for _ in range(2))
    assert first.shape == (2, 4) and not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, second)


def test_host_ops_run_for_each_device():
    x = fluid.layers.data("x", [3])
    out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[-1, 3])
    seen = []

    def double(value):
        seen.append(np.array(value).shape)
        return 2 * np.array(value)

    fluid.layers.py_func(double, fluid.layers.relu(x), out)
    total = fluid.layers.reduce_sum(out)
    fed = np.arange(15, dtype="float32").reshape(5, 3)
    exe = fluid.Executor(fluid.CPUPlace())
    values, totals = exe.run(two_devices(fluid.default_main_program()), feed={"x": fed}, fetch_list=[out, total])
    np.testing.assert_array_equal(values, 2 * fed)
    np.testing.assert_array_equal(totals, [2 * fed[:3].sum(), 2 * fed[3:].sum()])
    assert sorted(seen) == [(2, 3), (3, 3)]


def test_devices_read_a_batch_each():
    reader = fluid.layers.py_reader(capacity=4, shapes=[[-1, 2]], dtypes=["float32"], use_double_buffer=False)
    total = fluid.layers.reduce_sum(fluid.layers.read_file(reader))
    reader.decorate_tensor_provider(lambda: ([np.full((3, 2), i, "float32")] for i in range(4)))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = two_devices(fluid.default_main_program())
    reader.start()
    np.testing.assert_array_equal(exe.run(program, fetch_list=[total])[0], [0, 6])
    np.testing.assert_array_equal(exe.run(program, fetch_list=[total])[0], [12, 18])
    with pytest.raises(fluid.core.EOFException):
        exe.run(program, fetch_list=[total])


def test_cpu_num_may_be_set_after_the_first_run(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "1")
    x = fluid.layers.data("x", [1])
    mean = fluid.layers.mean(x)
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((4, 1), "float32")}
    assert exe.run(feed=feed, fetch_list=[mean])[0].shape == (1,)
    monkeypatch.setenv("CPU_NUM", "2")
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel()
    assert isinstance(program._target(), MeshTarget)
    assert exe.run(program, feed=feed, fetch_list=[mean])[0].shape == (2,)
    monkeypatch.setenv("CPU_NUM", "4")
    assert exe.run(program, feed=feed, fetch_list=[mean])[0].shape == (2,)


def test_without_cpu_num_one_device_is_used_with_a_warning(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "")
    monkeypatch.delenv("CPU_NUM")
    with pytest.warns(UserWarning, match="CPU_NUM is not set, so 1 CPU device is used"):
        assert len(fluid.cpu_places()) == 1


def test_a_test_program_runs_on_one_device_between_steps():
    loss = sgd()
    test = fluid.default_main_program().clone(for_test=True)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = two_devices(fluid.default_main_program(), loss_name=loss.name)
    (feed,) = batches(sgd, 1)
    losses = []
    for _ in range(3):
        losses.append(exe.run(program, feed=feed, fetch_list=[loss])[0].mean())
        losses.append(float(exe.run(test, feed=feed, fetch_list=[loss.name])[0]))
    assert losses[1] == pytest.approx(losses[2]) and losses[0] > losses[2] > losses[4]


def test_parallel_executors_share_variables(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    loss = sgd()
    test = fluid.default_main_program().clone(for_test=True)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    training = fluid.ParallelExecutor(False, loss_name=loss.name)
    testing = fluid.ParallelExecutor(False, main_program=test, share_vars_from=training)
    (feed,) = batches(sgd, 1)
    before = testing.run([loss.name], feed=feed)[0]
    half = {name: value[: BATCH // 2] for name, value in feed.items()}
    np.testing.assert_array_equal(training.run([loss.name], feed=feed)[0], before)
    assert testing.run([loss.name], feed_dict=feed)[0].mean() < before.mean()
    assert training.run([loss], feed=[half, half])[0].shape == (2,)
    assert training.device_count == 2
    training.drop_local_exe_scopes()


def test_wrong_arguments_are_named():
    loss = sgd()
    main, exe = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    (feed,) = batches(sgd, 1)
    with pytest.raises(AssertionError, match="needs loss_name"):
        exe.run(two_devices(main), feed=feed)
    with pytest.raises(ValueError, match="loss_name is other, but"):
        exe.run(two_devices(main, loss_name="other"), feed=feed)
    with pytest.raises(ValueError, match="share_vars_from is not data-parallel"):
        exe.run(two_devices(main, loss_name=loss.name, share_vars_from=fluid.CompiledProgram(main)), feed=feed)
    program = two_devices(main, loss_name=loss.name)
    with pytest.raises(FeedError, match="1 sample cannot be split over 2 devices"):
        exe.run(program, feed={name: value[:1] for name, value in feed.items()})
    with pytest.raises(ValueError, match="a list of 3 dicts, but the program runs on 2 devices"):
        exe.run(program, feed=[feed] * 3)
    with pytest.raises(ValueError, match="must have the same names"):
        exe.run(program, feed=[feed, {"x": feed["x"]}])
    with pytest.raises(AssertionError, match="already been called"):
        program.with_data_parallel()
    with pytest.raises(AttributeError, match="has no option fuse_all"):
        fluid.BuildStrategy().fuse_all = True
    with pytest.raises(RuntimeError, match="num_trainers is 2, but 1 process has joined"):
        strategy = fluid.BuildStrategy()
        strategy.num_trainers = 2
        exe.run(two_devices(main, loss_name=loss.name, build_strategy=strategy), feed=feed)


def test_the_printed_program_shows_where_gradients_meet():
    loss = sgd()
    program = two_devices(fluid.default_main_program(), loss_name=loss.name)._program_to_run()
    sums = [op.input("X")[0] for op in program.global_block().ops if op.type == "c_allreduce_sum"]
    assert sorted(sums) == ["fc_0.b_0@GRAD", "fc_0.w_0@GRAD", "fc_1.b_0@GRAD", "fc_1.w_0@GRAD"]
    assert "c_allreduce_sum" in str(program)


def shard_sizes(name):
    return [shard.data.shape for shard in fluid.global_scope().find_var(name).get_tensor().value.addressable_shards]


@pytest.mark.parametrize("model", [adam, sparse_sequences])
def test_devices_share_out_parameters_on_a_mesh_of_the_users(model):
    loss, main = model(), fluid.default_main_program()
    main.random_seed = fluid.default_startup_program().random_seed = 7
    name = main.all_parameters()[0].name
    refluid.shard_parameters(main, [name])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), ("data",))
    program = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=mesh)
    for feed in batches(model, 5):
        exe.run(program, feed=feed)
    rows = main.global_block().var(name).shape[0]
    assert [shape[0] for shape in shard_sizes(name)] == [rows // 2] * 2
    for parameter, expected in zip(main.all_parameters(), train(model, None)[1], strict=True):
        found = np.array(fluid.global_scope().find_var(parameter.name).get_tensor())
        np.testing.assert_allclose(found, expected, atol=1e-5)


def embedded_words():
    """Parameters whose rows or columns can be cut in two: a table with sparse gradients, and matrices."""
    words, y = fluid.layers.data("words", [1], dtype="int64", lod_level=1), fluid.layers.data("y", [1])
    pooled = fluid.layers.sequence_pool(fluid.layers.embedding(words, [20, 4], is_sparse=True), "sum")
    hidden = fluid.layers.batch_norm(fluid.layers.fc(pooled, 64, act="tanh"))
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.Momentum(0.002, 0.9).minimize(loss)
    return loss


@pytest.mark.parametrize("replicas", [1, 2])
def test_devices_along_an_axis_of_the_users_mesh_share_a_replica(replicas):
    devices = np.array(jax.devices("cpu")[: 2 * replicas])
    mesh = jax.sharding.Mesh(devices.reshape(2, replicas), ("model", "data"))
    row = jax.sharding.PartitionSpec("model")
    partitions = {"embedding_0.w_0": row, "fc_0.w_0": (None, "model"), "fc_1.w_0": row}
    found = [
        train(embedded_words, replicas),
        train(embedded_words, mesh, partitions=partitions),
    ]
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5), *found)


def test_parameters_that_are_cut_are_saved_whole_and_load_onto_other_numbers_of_devices(tmp_path):
    loss, main = adam(), fluid.default_main_program()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())

    def cut_among(devices):
        refluid.shard_parameters(main, {"fc_0.w_0": ("model",)})
        mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:devices]), ("model",))
        return fluid.CompiledProgram(main).with_data_parallel(loss.name, places=mesh)

    first, *rest = batches(adam, 3)
    exe.run(cut_among(2), feed=first)
    assert shard_sizes("fc_0.w_0") == [(3, 5)] * 2
    fluid.io.save_persistables(exe, str(tmp_path), main)
    found = []
    for program, sizes in ((cut_among(2), [(3, 5)] * 2), (cut_among(3), [(2, 5)] * 3), (main, [(6, 5)])):
        fluid.io.load_persistables(exe, str(tmp_path), main)
        found.append([exe.run(program, feed=feed, fetch_list=[loss])[0].item() for feed in rest])
        assert shard_sizes("fc_0.w_0") == sizes
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)


def test_no_device_holds_the_whole_of_a_parameter_that_is_cut():
    x = fluid.layers.data("x", [64])
    hidden = fluid.layers.fc(fluid.layers.fc(x, 4096, act="relu", bias_attr=False), 64, bias_attr=False)
    loss = fluid.layers.mean(hidden)
    fluid.optimizer.Adam(0.01).minimize(loss)
    main, exe = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    refluid.shard_parameters(main, {"fc_0.w_0": (None, "model"), "fc_1.w_0": ("model",)})
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:4]), ("model",))
    program = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=mesh)
    feed = {"x": np.ones((2, 64), "float32")}
    exe.run(program, feed=feed, fetch_list=[loss])
    moment = next(name for name in main.global_block().vars if name.startswith("fc_1.w_0_moment"))
    assert shard_sizes("fc_0.w_0") == [(64, 1024)] * 4 and shard_sizes(moment) == [(1024, 64)] * 4
    steps = program._program_to_run().lowered.steps
    compiled = steps.get(*steps)
    (function,) = compiled.pieces[0]._functions.values()
    step = compiled.bound[fluid.global_scope()]
    state = [holder.value for holder in step._mutable]
    others = [feed["x"] if holder is None else holder.value for _, holder in step._others]
    memory = function.call.lower(state, others, None).compile().memory_analysis()
    state_of_a_device = 2 * 3 * 64 * 4096 * 4 / 4  # two matrices, each with two moments
    assert memory.argument_size_in_bytes < 1.1 * state_of_a_device
    assert memory.temp_size_in_bytes < 64 * 4096 * 4  # less than one matrix


def test_parameters_that_cannot_be_shared_out_are_named():
    loss, main = sgd(), fluid.default_main_program()
    with pytest.raises(ValueError, match="has no parameter other"):
        refluid.shard_parameters(main, ["other"])
    refluid.shard_parameters(main, ["fc_0.b_0"])
    with pytest.raises(ValueError, match=r"fc_0.b_0 has shape \[5\]; its rows cannot be divided evenly among 2"):
        two_devices(main, loss_name=loss.name)._program_to_run()
    refluid.shard_parameters(main)
    assert two_devices(main, loss_name=loss.name)._program_to_run().partitions == {"fc_0.w_0": ("replicas",)}
    for partition, problem in (
        (("model",), "it is cut along the axis 'model', which the mesh does not have; give one as places"),
        (("replicas", None, None), r"has shape \[6, 5\], but a partition of 3 dims"),
    ):
        with pytest.raises(ValueError, match=problem):
            refluid.shard_parameters(main, {"fc_0.w_0": partition})
            two_devices(main, loss_name=loss.name)._program_to_run()
    refluid.shard_parameters(main, {"fc_0.w_0": (None, "model")})
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:2]), ("model",))
    with pytest.raises(ValueError, match=r"fc_0.w_0 has shape \[6, 5\]; its dims cannot be divided evenly among 2"):
        fluid.CompiledProgram(main).with_data_parallel(loss.name, places=mesh)._program_to_run()
