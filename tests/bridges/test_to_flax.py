"""Programs as modules of NNX: the same numbers, training with optax, orbax checkpoints, and back to Fluid's files."""

import filecmp

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

import paddle.fluid as fluid
import refluid
from refluid.errors import FeedError


def model(drop=0.0):
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
    hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 5, act="sigmoid"))
    if drop:
        hidden = fluid.layers.dropout(hidden, drop)
    prediction = fluid.layers.fc(hidden, 1, param_attr=fluid.ParamAttr("last", trainable=drop == 0))
    return prediction, fluid.layers.mean(fluid.layers.square_error_cost(prediction, y))


def started():
    fluid.default_startup_program().random_seed = 3
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def batches(count):
    random = np.random.RandomState(0)
    for _ in range(count):
        x = random.rand(8, 3).astype("float32")
        yield {"x": x, "y": x.sum(1, keepdims=True)}


def step_of(transformation, module):
    optimizer = nnx.Optimizer(module, transformation, wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer, feed):
        loss, grads = nnx.value_and_grad(lambda module: module(**feed)[0])(module)
        optimizer.update(module, grads)
        return loss

    return lambda feed: float(step(module, optimizer, feed))


def test_a_module_trains_with_optax_as_the_program_does_with_fluid():
    _, loss = model()
    fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    program, exe = fluid.default_main_program(), started()
    module = refluid.to_flax(program, ["x", "y"], [loss])
    step = step_of(optax.sgd(0.05, 0.9), module)
    plain = [exe.run(program, feed=feed, fetch_list=[loss])[0].item() for feed in batches(20)]
    np.testing.assert_allclose([step(feed) for feed in batches(20)], plain, rtol=1e-5)
    stats = np.array(fluid.global_scope().find_var("batch_norm_0.w_1").get_tensor())
    np.testing.assert_allclose(module.stats.batch_norm_0.w_1.get_value(), stats, rtol=1e-5)


def test_variables_are_in_their_places_and_evaluation_changes_nothing():
    _, loss = model(drop=0.5)
    program, exe = fluid.default_main_program(), started()
    test = program.clone(for_test=True)
    module = refluid.to_flax(program, ["x", "y"], [loss], rngs=nnx.Rngs(5))
    assert set(module.params) == {"fc_0", "fc_1", "batch_norm_0"}
    assert set(module.frozen) == {"last"} and set(module.stats.batch_norm_0) == {"w_1", "w_2"}
    (feed,) = batches(1)
    losses = {float(module(**feed)[0]) for _ in range(3)}
    assert len(losses) == 3  # dropout
    module.eval()
    module.write_back()
    expected = exe.run(test, feed=feed, fetch_list=[loss])[0]
    before = jax.tree.map(np.asarray, nnx.state(module, nnx.BatchStat))
    for _ in range(2):
        np.testing.assert_allclose(module(feed["x"], feed["y"]), expected, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(module, nnx.BatchStat))


def test_parameters_go_to_flax_and_back_into_the_same_files(tmp_path):
    _, loss = model()
    program, exe = fluid.default_main_program(), started()
    fluid.io.save_persistables(exe, str(tmp_path / "before"), program)
    module = refluid.to_flax(program, ["x", "y"], [loss])
    state = nnx.state(module)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "orbax", state)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "orbax", jax.tree.map(jnp.zeros_like, state))
    with fluid.scope_guard(fluid.Scope()):
        nnx.update(module, restored)
        module.write_back()
        fluid.io.save_persistables(exe, str(tmp_path / "after"), program)
    names = [path.name for path in (tmp_path / "before").iterdir()]
    assert len(names) == 8
    assert filecmp.cmpfiles(tmp_path / "before", tmp_path / "after", names, shallow=False)[0] == names


def test_a_missing_feed_is_named():
    _, loss = model()
    started()
    module = refluid.to_flax(fluid.default_main_program(), ["x", "y"], [loss])
    with pytest.raises(FeedError, match="feed y: the model needs it"):
        module(np.ones((1, 3), "float32"))


def test_sequences_are_given_as_lod_tensors():
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    found = fluid.layers.embedding(words, [5, 2], param_attr="table")
    pooled = fluid.layers.sequence_pool(found, "sum")
    started()
    module = refluid.to_flax(fluid.default_main_program(), ["words"], [pooled])
    ids = fluid.create_lod_tensor(np.array([[1], [2], [4]]), [[1, 2]], fluid.CPUPlace())
    table = np.asarray(module.params.table.get_value())
    np.testing.assert_allclose(module(ids), [table[1], table[2] + table[4]], rtol=1e-6)


def test_a_function_can_be_jitted_differentiated_and_mapped():
    prediction, _ = model()
    started()
    program = fluid.default_main_program().clone(for_test=True)
    function, state = refluid.to_jax(program, ["x"], [prediction])

    def predict(state, x):
        return function(state, x=x)[0][0]

    x = np.random.RandomState(0).rand(4, 3).astype("float32")
    expected = predict(state, x)
    np.testing.assert_allclose(jax.jit(predict)(state, x), expected, rtol=1e-6)
    single = jax.vmap(lambda row: predict(state, row[None])[0])(x)
    np.testing.assert_allclose(single, expected, rtol=1e-5)
    grads = jax.grad(lambda state: predict(state, x).sum())(state)
    np.testing.assert_allclose(grads["fc_1.b_0"], [4.0], rtol=1e-6)
    many = jax.vmap(predict, in_axes=(0, None))(jax.tree.map(lambda value: jnp.stack([value, 2 * value]), state), x)
    assert many.shape == (2, 4, 1)
