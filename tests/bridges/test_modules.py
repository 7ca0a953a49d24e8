"""Modules as people write them: with setup, shared and nested submodules, several random streams, and other dtypes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx, traverse_util

import paddle.fluid as fluid
import refluid

X = np.random.RandomState(0).randn(4, 3).astype("float32")


def value(name):
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def started():
    fluid.default_startup_program().random_seed = 3
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def trained(out, optimizer=None, feed=X, steps=2):
    """The loss after some steps, and what the layer gives then in a test program."""
    out = fluid.layers.cast(out, "float32")
    loss = fluid.layers.mean(fluid.layers.square(out))
    test = fluid.default_main_program().clone(for_test=True)
    (optimizer or fluid.optimizer.SGD(0.1)).minimize(loss)
    exe = started()
    losses = [exe.run(feed={"x": feed}, fetch_list=[loss])[0].item() for _ in range(steps)]
    assert np.isfinite(losses).all() and len(set(losses)) == steps
    return exe.run(test, feed={"x": feed}, fetch_list=[out])[0]


def names():
    return {p.name for p in fluid.default_main_program().all_parameters()}


def linen_variables(prefix):
    """The variables of a layer as linen has them."""
    flat = {}
    for variable in fluid.default_main_program().list_vars():
        if variable.persistable and variable.name.startswith(prefix + "."):
            path = tuple(variable.name.split(".")[1:])
            flat[path if path[0] == "batch_stats" else ("params", *path)] = value(variable.name)
    return traverse_util.unflatten_dict(flat)


class Residual(nn.Module):
    def setup(self):
        self.left, self.right = nn.Dense(3), nn.Dense(3)
        self.norm, self.drop = nn.BatchNorm(), nn.Dropout(0.5)

    def __call__(self, x, train=False):
        total = self.norm(self.left(x) + self.right(x), use_running_average=not train)
        return x + self.drop(total, deterministic=not train)


class Stack(nn.Module):
    def setup(self):
        shared = nn.Dense(3)
        self.blocks = [Residual(), shared, Residual(), shared]

    def __call__(self, x, train=False):
        for block in self.blocks:
            x = block(x, train) if isinstance(block, Residual) else block(x)
        return x

    def first(self, x, train=False):
        return self.blocks[0](x, train)


def test_linen_modules_with_setup_have_nested_lists_shared_modules_and_methods():
    x = fluid.layers.data("x", [3])
    whole = refluid.flax_layer(Stack(), x, name="s")
    before = names()
    first = refluid.flax_layer(Stack(), x, name="s", method=Stack.first)
    assert names() == before and len(before) == 2 * 6 + 2  # the shared one counts once, the method adds none
    assert {"s.blocks_0.left.kernel", "s.blocks_1.kernel", "s.blocks_2.norm.scale"} < before
    found = trained(fluid.layers.concat([whole, first], axis=1))
    variables = linen_variables("s")
    assert variables["batch_stats"]["blocks_0"]["norm"]["mean"].any()
    plain = [Stack().apply(variables, X), Stack().apply(variables, X, method=Stack.first)]
    np.testing.assert_allclose(found, np.concatenate(plain, 1), rtol=1e-5, atol=1e-6)


class Streams(nnx.Module):
    """Two streams, one of them renamed and kept by the module; a layer under two names; a dict as result."""

    def __init__(self, rngs):
        self.one = self.other = nnx.Linear(3, 3, rngs=rngs)
        self.more = nnx.List([nnx.Linear(3, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs)])
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.noise = nnx.Rngs(noise=rngs.params())

    def __call__(self, x):
        x = self.other(nnx.relu(self.one(x)))
        for layer in self.more:
            x = layer(x)
        noisy = x if self.drop.deterministic else x + 0.1 * jax.random.normal(self.noise.noise(), x.shape)
        return {"out": self.drop(noisy), "parts": (x, self.one(x))}


@pytest.mark.parametrize(
    "make", [Streams, lambda rngs: Streams(nnx.Rngs(params=rngs.params(), dropout=rngs.dropout()))]
)
def test_nnx_modules_have_several_streams_shared_layers_and_trees(make):
    results = refluid.flax_layer(make, fluid.layers.data("x", [3]), name="s")
    assert names() == {f"s.{each}" for each in ("one.kernel", "one.bias", "more.0.kernel", "more.0.bias")} | {
        "s.more.1.scale",
        "s.more.1.bias",
    }
    found = trained(fluid.layers.concat([results["out"], *results["parts"]], axis=1))
    module = Streams(nnx.Rngs(0))
    state = nnx.state(module, (nnx.Param, nnx.BatchStat))
    for path, variable in nnx.to_flat_state(state):
        variable.set_value(jnp.asarray(value(".".join(["s", *map(str, path)]))))
    nnx.update(module, state)
    module.eval()
    plain = module(X)
    np.testing.assert_allclose(found, np.concatenate([plain["out"], *plain["parts"]], 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("flavour", "dtype"), [("linen", "bfloat16"), ("nnx", "float16"), ("linen", "float64"), ("nnx", "float64")]
)
def test_parameters_results_and_states_have_the_dtypes_of_the_module(flavour, dtype):
    x = fluid.layers.data("x", [3])
    if dtype != "bfloat16":
        x = fluid.layers.cast(x, dtype)
    types = {"dtype": dtype, "param_dtype": dtype}
    linen, make = nn.Dense(2, **types), lambda rngs: nnx.Linear(3, 2, rngs=rngs, **types)
    out = refluid.flax_layer(linen if flavour == "linen" else make, x, name="d")
    found = trained(out, refluid.OptaxOptimizer(optax.adam(1e-2)), steps=2)
    kinds = {value(name).dtype for name in ("d.kernel", "d.bias", "d.kernel_0.mu_0", "d.kernel_0.nu_0")}
    assert kinds == {jnp.dtype(dtype)}
    expected = X.astype("float64") @ value("d.kernel").astype("float64") + value("d.bias").astype("float64")
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float64" else 2e-2, atol=2e-2)
    if dtype == "float64":  # computed with all bits, from the first value on
        assert (value("d.kernel").astype("float32") != value("d.kernel")).all()


def test_frozen_parameters_stay_and_have_no_state():
    x = fluid.layers.data("x", [3])
    attr = fluid.ParamAttr(trainable=False)
    hidden = refluid.flax_layer(nn.BatchNorm(), x, name="f", param_attr=attr)
    trained(fluid.layers.fc(hidden, 1), refluid.OptaxOptimizer(optax.adamw(1e-2)))
    held = {v.name for v in fluid.default_main_program().list_vars() if v.persistable and v.name.startswith("f.")}
    assert held == {"f.scale", "f.bias", "f.batch_stats.mean", "f.batch_stats.var"}
    np.testing.assert_array_equal(value("f.scale"), np.ones(3))
    assert value("f.batch_stats.mean").any()  # statistics are not parameters


class Inception(nn.Module):
    """Has a part that exists in training only, and takes a number and an array besides its input."""

    @nn.compact
    def __call__(self, x, width, scale, train):
        out = nn.Dense(width)(x) * scale
        return out + nn.Dense(width, name="auxiliary")(x) if train else out


def test_parts_that_exist_in_training_only_are_initialised_and_constants_are_passed_on():
    out = refluid.flax_layer(Inception(), fluid.layers.data("x", [3]), 2, np.full(2, 0.5, "float32"), name="i")
    found = trained(out)
    assert "i.auxiliary.kernel" in names()
    expected = (X @ value("i.Dense_0.kernel") + value("i.Dense_0.bias")) * 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class Spectral(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return nn.SpectralNorm(nn.Dense(2))(x, update_stats=train)


def test_names_are_those_of_files(tmp_path):
    trained(refluid.flax_layer(Spectral(), fluid.layers.data("x", [3]), name="s"))
    name = "s.batch_stats.SpectralNorm_0.Dense_0_kernel_u"  # flax says Dense_0/kernel/u
    exe, before = fluid.Executor(fluid.CPUPlace()), value(name)
    fluid.io.save_persistables(exe, str(tmp_path / "separate"))
    assert (tmp_path / "separate" / name).is_file()
    with pytest.warns(UserWarning, match="pdmodel is not written: jax_call: it calls Python code"):
        fluid.save(fluid.default_main_program(), str(tmp_path / "together" / "model"))
    fluid.global_scope().find_var(name).get_tensor().set(np.zeros_like(before), fluid.CPUPlace())
    fluid.load(fluid.default_main_program(), str(tmp_path / "together" / "model"))
    np.testing.assert_array_equal(value(name), before)


def test_a_cell_of_flax_is_the_step_of_a_dynamic_rnn():
    x = fluid.layers.data("x", [3], lod_level=1)
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        carry = rnn.memory(shape=[3], value=0.0), rnn.memory(shape=[3], value=0.0)
        after, hidden = refluid.flax_layer(nn.LSTMCell(3), carry, word, name="cell")
        for old, new in zip(carry, after, strict=True):
            rnn.update_memory(old, new)
        rnn.output(hidden)
    rows = np.random.RandomState(1).randn(7, 3).astype("float32")
    feed = fluid.create_lod_tensor(rows, [[4, 1, 2]], fluid.CPUPlace())
    found = trained(fluid.layers.sequence_last_step(rnn()), feed=feed)
    padded = np.zeros((3, 4, 3), "float32")
    for place, (start, stop) in enumerate([(0, 4), (4, 5), (5, 7)]):
        padded[place, : stop - start] = rows[start:stop]
    cells = {"cell": linen_variables("cell")["params"]}
    expected = nn.RNN(nn.LSTMCell(3)).apply({"params": cells}, padded)
    np.testing.assert_allclose(found, expected[np.arange(3), [3, 0, 1]], rtol=1e-5, atol=1e-6)


def test_statistics_follow_every_step_of_a_static_rnn():
    x = fluid.layers.data("x", [4, 2, 3], append_batch_size=False)
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        rnn.step_output(refluid.flax_layer(nn.BatchNorm(momentum=0.5), word, name="norm"))
    out, rows = rnn(), np.random.RandomState(1).randn(4, 2, 3).astype("float32")
    test = fluid.default_main_program().clone(for_test=True)
    exe, expected = started(), np.zeros(3)
    exe.run(test, feed={"x": rows}, fetch_list=[out])
    np.testing.assert_array_equal(value("norm.batch_stats.mean"), expected)
    exe.run(feed={"x": rows}, fetch_list=[out])
    for row in rows:
        expected = 0.5 * expected + 0.5 * row.mean(0)
    np.testing.assert_allclose(value("norm.batch_stats.mean"), expected, rtol=1e-5)
