"""JAX functions as operators: anywhere in a program, differentiated, with the types and keys that plain JAX has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.errors import OpError


def started():
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def gelu(x):
    return x * jax.scipy.stats.norm.cdf(x)


def test_a_function_is_differentiated_by_jax():
    x = fluid.layers.data("x", [3])
    x.stop_gradient = False
    out = refluid.jax_layer(gelu, x)
    assert out.op.type == "jax_call"
    (grad,) = fluid.gradients(fluid.layers.reduce_sum(out), x)
    feed = np.random.RandomState(0).randn(2, 3).astype("float32")
    found = started().run(feed={"x": feed}, fetch_list=[out, grad])
    np.testing.assert_allclose(found[0], gelu(feed), rtol=1e-6)
    np.testing.assert_allclose(found[1], jax.vmap(jax.vmap(jax.grad(gelu)))(feed), rtol=1e-5)


def test_a_function_runs_in_the_body_of_a_loop_and_has_a_gradient_there():
    x = fluid.layers.data("x", [2], append_batch_size=False, stop_gradient=False)
    i, n = (fluid.layers.fill_constant([1], "int64", number) for number in (0, 3))
    total = fluid.layers.assign(x)
    going = fluid.layers.less_than(i, n)
    loop = fluid.layers.While(going)
    with loop.block():
        fluid.layers.assign(refluid.jax_layer(lambda t: t * t + 1, total), total)
        fluid.layers.increment(i)
        fluid.layers.less_than(i, n, cond=going)
    (grad,) = fluid.gradients(fluid.layers.reduce_sum(total), x)
    found = started().run(feed={"x": np.array([0, 1], "float32")}, fetch_list=[total, grad])
    np.testing.assert_array_equal(found, [[5, 26], [0, 2 * 1 * 2 * 2 * 2 * 5]])


def recurrent(build, feed):
    """Losses of a recurrent net whose step is ``cell(fc, x, state)``, with the cell as a function and as layers."""
    losses = []
    for cell in (
        lambda mixed, before: refluid.jax_layer(lambda m, b: jnp.tanh(m) * 0.5 + b, mixed, before),
        lambda mixed, before: fluid.layers.tanh(mixed) * 0.5 + before,
    ):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 3
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            loss = fluid.layers.mean(build(cell))
            fluid.optimizer.SGD(0.1).minimize(loss)
            exe = started()
            losses.append([exe.run(main, feed=feed(), fetch_list=[loss])[0][0] for _ in range(3)])
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_a_function_runs_in_a_static_rnn():
    def build(cell):
        x = fluid.layers.data("x", [4, 2, 3], append_batch_size=False)
        rnn = fluid.layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(shape=[-1, 3], batch_ref=x, ref_batch_dim_idx=1)
            rnn.update_memory(before, cell(fluid.layers.fc(word, 3, param_attr="w", bias_attr="b"), before))
            rnn.step_output(before)
        return rnn()

    recurrent(build, lambda: {"x": np.random.RandomState(0).randn(4, 2, 3).astype("float32")})


def test_a_function_runs_in_a_dynamic_rnn():
    def build(cell):
        x = fluid.layers.data("x", [3], lod_level=1)
        rnn = fluid.layers.DynamicRNN()
        with rnn.block():
            word, before = rnn.step_input(x), rnn.memory(shape=[3], value=0.0)
            after = cell(fluid.layers.fc(word, 3, param_attr="w", bias_attr="b"), before)
            rnn.update_memory(before, after)
            rnn.output(after)
        return fluid.layers.sequence_last_step(rnn())

    def feed():
        rows = np.random.RandomState(0).randn(7, 3).astype("float32")
        return {"x": fluid.create_lod_tensor(rows, [[4, 1, 2]], fluid.CPUPlace())}

    recurrent(build, feed)


@pytest.mark.parametrize("recompute", [False, True])
def test_random_numbers_follow_the_seed_and_are_the_same_in_the_gradient(recompute):
    fluid.default_main_program().random_seed = 3
    x = fluid.layers.data("x", [50])
    weights = fluid.layers.create_parameter(
        [50], "float32", name="w", default_initializer=fluid.initializer.Constant(1.0)
    )
    dropped = refluid.jax_layer(lambda v, key: v * jax.random.bernoulli(key, 0.5, v.shape), x * weights)
    assert dropped.op.type == "random_jax_call"
    doubled = refluid.jax_layer(lambda v: v + v, dropped)
    loss = fluid.layers.mean(doubled)
    optimizer = fluid.optimizer.SGD(0.0)
    if recompute:
        optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
        optimizer._set_checkpoints([doubled])
    optimizer.minimize(loss)
    types = [op.type for op in fluid.default_main_program().global_block().ops]
    assert types.count("random_jax_call") == types.count("jax_call") == 1 + recompute
    exe, feed = started(), {"x": np.ones((1, 50), "float32")}
    masks = []
    for _ in range(2):
        mask, grad = exe.run(feed=feed, fetch_list=[dropped, "w@GRAD"])
        np.testing.assert_allclose(mask[0] * 2 / 50, grad, rtol=1e-6)
        masks.append(mask)
    assert 10 < masks[0].sum() < 40 and not np.array_equal(*masks)


@pytest.mark.parametrize(("x64", "dtype"), [(None, "int32"), (True, "int64")])
def test_64_bit_integers_become_those_of_jax_if_they_fit(x64, dtype):
    ids = fluid.layers.data("ids", [1], dtype="int64")
    out = refluid.jax_layer(lambda v: v % 1000, ids, x64=x64)
    exe = started()
    (found,) = exe.run(feed={"ids": np.array([[-7], [1234]])}, fetch_list=[out])
    assert found.dtype.name == dtype and found.tolist() == [[993], [234]]
    large = {"ids": np.array([[2**40 + 5], [0]])}
    if x64:
        assert exe.run(feed=large, fetch_list=[out])[0][0] == (2**40 + 5) % 1000
        return
    with pytest.raises(OpError, match="does not fit into the 32 bits that JAX uses(.|\n)*x64=True"):
        exe.run(feed=large, fetch_list=[out])


def test_float64_stays_float64():
    x = fluid.layers.data("x", [1], dtype="float64")
    (found,) = started().run(feed={"x": np.array([[1 + 1e-12]])}, fetch_list=[refluid.jax_layer(lambda v: v - 1, x)])
    assert found.dtype == np.float64 and abs(found.item() - 1e-12) < 1e-15


def test_functions_that_mix_rows_do_not_take_sequences():
    x = fluid.layers.data("x", [3], lod_level=1)
    assert refluid.jax_layer(gelu, x).lod_level == 1
    with pytest.raises(OpError, match="cumsum: it mixes rows(.|\n)*sequence_pad"):
        refluid.jax_layer(jnp.cumsum, x)


def test_what_cannot_be_traced_is_named_with_the_users_line():
    x = fluid.layers.data("x", [3])
    with pytest.raises(OpError, match=r"jax_layer: <lambda>: (.|\n)*x  float32\[-1, 3\](.|\n)*test_jax_layer.py"):
        refluid.jax_layer(lambda v: v @ jnp.ones((4, 4)), x)


def test_a_function_that_returns_something_else_in_another_run_is_refused():
    x, seen = fluid.layers.data("x", [3]), []

    def fickle(v):
        seen.append(v)
        return v if len(seen) < 5 else (v, v)

    out = refluid.jax_layer(fickle, x)
    while len(seen) < 5:
        seen.append(None)
    with pytest.raises(OpError, match="fickle returns .* in training, but .* when it was added"):
        started().run(feed={"x": np.ones((1, 3), "float32")}, fetch_list=[out])
