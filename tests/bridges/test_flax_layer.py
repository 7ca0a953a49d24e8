"""Flax modules inside of programs train as they do in plain flax, and their variables are variables of the program."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import paddle.fluid as fluid
import refluid
from refluid.errors import OpError

STEPS, BATCH, RATE = 50, 8, 0.05
SCOPE = fluid.global_scope


def value(name):
    return np.array(SCOPE().find_var(name).get_tensor())


def started():
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


class LinenLSTM(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.RNN(nn.LSTMCell(4))(x)


class NNXLSTM(nnx.Module):
    def __init__(self, rngs):
        self.cells = nnx.RNN(nnx.LSTMCell(3, 4, rngs=rngs), rngs=rngs)

    def __call__(self, x):
        return self.cells(x)


def attention(rngs):
    return nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)


# module of linen, module of NNX, shape of a sample, options of the call
MODULES = {
    "Dense": (nn.Dense(3), lambda rngs: nnx.Linear(5, 3, rngs=rngs), [5], {}),
    "Conv": (nn.Conv(3, (3, 3)), lambda rngs: nnx.Conv(2, 3, (3, 3), rngs=rngs), [5, 5, 2], {}),
    "BatchNorm": (nn.BatchNorm(), lambda rngs: nnx.BatchNorm(5, rngs=rngs), [5], {}),
    "LayerNorm": (nn.LayerNorm(), lambda rngs: nnx.LayerNorm(5, rngs=rngs), [5], {}),
    "Embed": (nn.Embed(7, 3), lambda rngs: nnx.Embed(7, 3, rngs=rngs), [4], {}),
    "Attention": (nn.MultiHeadDotProductAttention(2), attention, [6, 4], {}),
    "LSTM": (LinenLSTM(), NNXLSTM, [6, 3], {}),
}


def sample(random, name, shape):
    full = (BATCH, *shape)
    return random.randint(0, 7, full) if name == "Embed" else random.randn(*full).astype("float32")


def linen_loop(module, name, batches, params, states):
    """Losses of plain linen and optax."""
    optimizer = optax.sgd(RATE)

    @jax.jit
    def step(params, states, memory, x, y):
        def loss(params):
            options = {"use_running_average": False} if name == "BatchNorm" else {}
            out, changed = module.apply({"params": params, **states}, x, **options, mutable=list(states))
            return jnp.mean(jnp.square(out - y)), changed

        (value, states), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, memory = optimizer.update(grads, memory)
        return value, optax.apply_updates(params, updates), states, memory

    memory, losses = optimizer.init(params), []
    for x, y in batches:
        loss, params, states, memory = step(params, states, memory, x, y)
        losses.append(loss)
    return losses


def nnx_loop(module, batches):
    """Losses of plain NNX and optax."""
    optimizer = nnx.Optimizer(module, optax.sgd(RATE), wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer, x, y):
        value, grads = nnx.value_and_grad(lambda module: jnp.mean(jnp.square(module(x) - y)))(module)
        optimizer.update(module, grads)
        return value

    return [step(module, optimizer, x, y) for x, y in batches]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("flavour", ["linen", "nnx"])
def test_a_module_trains_as_in_plain_flax(name, flavour):
    linen, make, shape, options = MODULES[name]
    random = np.random.RandomState(0)
    dtype = "int64" if name == "Embed" else "float32"
    x = fluid.layers.data("x", shape, dtype=dtype)
    out = refluid.flax_layer(linen if flavour == "linen" else make, x, name="m", **options)
    assert out.shape[0] == -1
    y = fluid.layers.data("y", list(out.shape[1:]))
    loss = fluid.layers.mean(fluid.layers.square(out - y))
    fluid.optimizer.SGD(RATE).minimize(loss)
    exe = started()
    batches = [
        (sample(random, name, shape), random.randn(BATCH, *out.shape[1:]).astype("float32")) for _ in range(STEPS)
    ]
    main = fluid.default_main_program()
    held = {v.name: value(v.name) for v in main.list_vars() if v.persistable and v.name.startswith("m.")}
    ours = [exe.run(feed={"x": x, "y": y}, fetch_list=[loss])[0] for x, y in batches]

    if flavour == "linen":
        paths = {tuple(key.split(".")[1:]): array for key, array in held.items()}
        params = {path: array for path, array in paths.items() if path[0] != "batch_stats"}
        states = {path: array for path, array in paths.items() if path[0] == "batch_stats"}
        nest = refluid.bridges.modules.traverse_util.unflatten_dict
        plain = linen_loop(linen, name, batches, nest(params), nest(states))
    else:
        module = make(nnx.Rngs(0))
        state = nnx.state(module, nnx.Param)
        for path, variable in nnx.to_flat_state(state):
            variable.set_value(jnp.asarray(held[".".join(["m", *map(str, path)])]))
        nnx.update(module, state)
        plain = nnx_loop(module, batches)
    np.testing.assert_allclose(np.ravel(ours), np.ravel(plain), atol=1e-6, rtol=1e-6)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x))
        return nn.Dense(1)(nn.Dropout(0.5, deterministic=not train)(x))


def net(**options):
    x = fluid.layers.data("x", [3])
    return refluid.flax_layer(Net(), x, name="net", **options)


def run(exe, program, out, rows=4):
    return exe.run(program, feed={"x": np.ones((rows, 3), "float32")}, fetch_list=[out])[0]


def test_variables_have_readable_names_and_follow_the_seed_of_the_startup_program():
    net()
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    assert {p.name: tuple(p.shape) for p in main.all_parameters()} == {
        "net.BatchNorm_0.bias": (4,),
        "net.BatchNorm_0.scale": (4,),
        "net.Dense_0.bias": (4,),
        "net.Dense_0.kernel": (3, 4),
        "net.Dense_1.bias": (1,),
        "net.Dense_1.kernel": (4, 1),
    }
    states = {v.name for v in main.list_vars() if v.persistable} - {p.name for p in main.all_parameters()}
    assert states == {"net.batch_stats.BatchNorm_0.mean", "net.batch_stats.BatchNorm_0.var"}
    startup.random_seed = 5
    started()
    first = value("net.Dense_0.kernel")
    started()
    np.testing.assert_array_equal(value("net.Dense_0.kernel"), first)
    startup.random_seed = 6
    started()
    assert not np.array_equal(value("net.Dense_0.kernel"), first)
    assert first.std() > 0.1 and not value("net.Dense_0.bias").any()


def test_training_draws_other_numbers_in_every_step_and_updates_statistics_and_tests_do_not():
    out = net()
    main = fluid.default_main_program()
    test = main.clone(for_test=True)
    exe = started()
    name = "net.batch_stats.BatchNorm_0.mean"
    before = value(name)
    np.testing.assert_array_equal(run(exe, test, out), run(exe, test, out))
    np.testing.assert_array_equal(value(name), before)
    SCOPE().find_var("net.BatchNorm_0.bias").get_tensor().set(np.ones(4, "float32"), fluid.CPUPlace())
    assert not np.array_equal(run(exe, main, out), run(exe, main, out))
    assert not np.array_equal(value(name), before)


def test_an_argument_that_the_user_gives_wins_in_training_only():
    out = net(train=False)
    test = fluid.default_main_program().clone(for_test=True)
    exe = started()
    np.testing.assert_array_equal(run(exe, fluid.default_main_program(), out), run(exe, test, out))


def test_parameters_take_attributes_by_path():
    x = fluid.layers.data("x", [3])
    attrs = {
        "Dense_0.kernel": fluid.ParamAttr(initializer=fluid.initializer.Constant(2.0), trainable=False),
        "*.bias": fluid.ParamAttr(learning_rate=0.0),
    }
    out = refluid.flax_layer(
        nn.Sequential([nn.Dense(2), nn.Dense(1)]),
        x,
        name="s",
        param_attr={"layers_0.kernel": attrs["Dense_0.kernel"], "*.bias": attrs["*.bias"]},
    )
    fluid.optimizer.SGD(1.0, regularization=fluid.regularizer.L2Decay(0.1)).minimize(fluid.layers.mean(out))
    exe = started()
    moving = value("s.layers_1.kernel")
    run(exe, fluid.default_main_program(), out)
    np.testing.assert_array_equal(value("s.layers_0.kernel"), np.full((3, 2), 2.0))
    assert not value("s.layers_0.bias").any() and not value("s.layers_1.bias").any()
    # The mean of 4 rows [6, 6] W: the gradient of W is [6, 6], and L2 adds a tenth of W.
    np.testing.assert_allclose(value("s.layers_1.kernel"), moving - 6 - 0.1 * moving, rtol=1e-5)


def test_layers_of_the_same_name_share_variables():
    x = fluid.layers.data("x", [3])
    module = nn.Dense(3)
    refluid.flax_layer(module, refluid.flax_layer(module, x, name="d"), name="d")
    assert len(fluid.default_main_program().all_parameters()) == 2
    assert len(fluid.default_startup_program().global_block().ops) == 2
    already = r"d.bias is float32\[3\] in this program already, but float32\[4\] is needed(.|\n)*test_flax_layer"
    with pytest.raises(OpError, match=already):
        refluid.flax_layer(nn.Dense(4), x, name="d")


def test_parameters_are_saved_and_loaded_in_fluids_format(tmp_path):
    out = net()
    exe, program = started(), fluid.default_main_program()
    test = program.clone(for_test=True)
    before = run(exe, test, out)
    fluid.io.save_persistables(exe, str(tmp_path), program)
    assert (tmp_path / "net.Dense_0.kernel").exists()
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(exe, str(tmp_path), program)
        np.testing.assert_array_equal(run(exe, test, out), before)


def test_an_nnx_module_begins_with_its_own_values():
    module = nnx.Linear(3, 2, rngs=nnx.Rngs(3))
    refluid.flax_layer(module, fluid.layers.data("x", [3]), name="l")
    started()
    np.testing.assert_array_equal(value("l.kernel"), module.kernel.get_value())


class Pairs(nn.Module):
    """Trees in and out, a scalar parameter, and an argument by keyword."""

    @nn.compact
    def __call__(self, pair, mask=None):
        scale = self.param("scale", nn.initializers.constant(3.0), ())
        total = scale * (pair["a"] + pair["b"][0])
        return {"sum": total if mask is None else total * mask, "parts": (pair["a"], pair["b"][0])}


def test_inputs_and_results_may_be_trees():
    a, b, mask = (fluid.layers.data(name, [2]) for name in ("a", "b", "mask"))
    out = refluid.flax_layer(Pairs(), {"a": a, "b": [b]}, mask=mask, name="p")
    assert set(out) == {"sum", "parts"} and value_shape("p.scale") == (1,)
    feed = {name: np.full((1, 2), number, "float32") for name, number in (("a", 1), ("b", 2), ("mask", 0.5))}
    results = started().run(feed=feed, fetch_list=[out["sum"], *out["parts"]])
    np.testing.assert_array_equal(np.ravel(results), [4.5, 4.5, 1, 1, 2, 2])


def value_shape(name):
    return tuple(fluid.default_main_program().global_block().var(name).shape)


def test_modules_that_work_row_by_row_take_sequences():
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    embedded = fluid.layers.embedding(words, [9, 4])
    hidden = refluid.flax_layer(nn.Sequential([nn.Dense(3), nn.LayerNorm()]), embedded, name="rows")
    assert hidden.lod_level == 1
    pooled = fluid.layers.sequence_pool(hidden, "sum")
    loss = fluid.layers.mean(pooled)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe, found = started(), []
    for lengths in ([2, 3], [1, 4, 2]):
        ids = np.arange(sum(lengths)).reshape(-1, 1) % 9
        tensor = fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())
        found.append(exe.run(feed={"words": tensor}, fetch_list=[pooled, hidden], return_numpy=False))
    assert [np.array(each[0]).shape for each in found] == [(2, 3), (3, 3)]
    assert found[1][1].recursive_sequence_lengths() == [[1, 4, 2]]
    with pytest.raises(OpError, match=r"BatchNorm.__call__: it mixes rows(.|\n)*sequence_pad"):
        refluid.flax_layer(nn.BatchNorm(), embedded)


class Branches(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x if x.sum() > 0 else -x


class Cache(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x + self.variable("cache", "rows", lambda: jnp.zeros(x.shape)).value


class Text(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.variable("notes", "text", lambda: "hello")
        return x


class Sown(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.sow("losses", "sum", x.sum())
        return x


class NNXCases(nnx.Module):
    """Methods that a layer cannot call."""

    def __init__(self, rngs, text=None):
        self.dense = nnx.Linear(3, 3, rngs=rngs)
        if text:
            self.text = nnx.Cache(text)

    def branch(self, x):
        return x if x.sum() > 0 else -x

    def wrong_rank(self, x):
        return self.dense(x)[:, :, 0]

    def late(self, x):
        self.cache = nnx.Cache(x[0])
        return self.dense(x)


LATE = "its variable cache does not exist before the call"


@pytest.mark.parametrize(
    ("module", "method", "problem", "hint"),
    [
        (Branches(), None, "Branches.__call__: .*traced", "depends on the values of arrays"),
        (NNXCases, "branch", "NNXCases.branch: .*traced", "depends on the values of arrays"),
        (nn.Conv(2, (3, 3, 3)), None, "Conv.__call__: ", None),
        (NNXCases, "wrong_rank", "NNXCases.wrong_rank: Too many indices: array is 2-dimensional", None),
        (nn.Dense(2), "apply_to", "Dense: Dense has no method 'apply_to'", None),
        (Cache(), None, "Cache.__call__: the shape of cache.rows depends on an unknown dim of the inputs", None),
        (Text(), None, "Text.__call__: its variable notes.text is a str, but programs hold arrays", None),
        (Sown(), None, "Sown.__call__: its variable losses.sum is a tuple, but .*; return what you would sow", None),
        (nn.Dense(2, param_dtype=jnp.complex64), None, "Dense.__call__: its variable bias cannot .* complex64", None),
        (lambda rngs: NNXCases(rngs, "hello"), "late", "<lambda>: .*<class 'str'> at .*'text'", None),
        (NNXCases, "late", f"NNXCases.late: {LATE}", None),
        (5, None, "expected a flax module, or a function from nnx.Rngs to one, not 5", None),
    ],
)
def test_what_cannot_be_a_layer_is_named_with_method_shapes_and_the_users_line(module, method, problem, hint):
    x = fluid.layers.data("x", [3])
    with pytest.raises(OpError, match=f"flax_layer: .*{problem}") as caught:
        refluid.flax_layer(module, x, method=method)
    text = str(caught.value)
    assert "x  float32[-1, 3]" in text and "written at" in text and "test_flax_layer.py" in text
    assert hint is None or hint in caught.value.hint


def test_wrong_arguments_are_named():
    x = fluid.layers.data("x", [3])
    with pytest.raises(
        OpError, match="Dense.__call__: param_attr names 'weights', which is no parameter of it(.|\n)*bias, kernel"
    ):
        refluid.flax_layer(nn.Dense(2), x, param_attr={"weights": fluid.ParamAttr()})
    with pytest.raises(OpError, match="gives the name 'w' to several parameters"):
        refluid.flax_layer(nn.Dense(2), x, param_attr=fluid.ParamAttr(name="w"))
    with pytest.raises(OpError, match="param_attr cannot be False"):
        refluid.flax_layer(nn.Dense(2), x, param_attr=False)
    with pytest.raises(OpError, match="it is given no variable"):
        refluid.flax_layer(nn.Dense(2), np.ones(3))


def test_a_program_with_a_module_is_exported_but_not_written_as_a_program_desc(tmp_path):
    out = net()
    exe = started()
    expected = run(exe, fluid.default_main_program().clone(for_test=True), out)
    with pytest.raises(OpError, match="it calls Python code .Net.*(.|\n)*refluid.export"):
        fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [out], exe)
    assert not (tmp_path / "model" / "__model__").exists()
    refluid.export(fluid.default_main_program(), tmp_path / "out", feeds=["x"], fetches=[out])
    (found,) = refluid.load(tmp_path / "out")(x=np.ones((4, 3), "float32"))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
