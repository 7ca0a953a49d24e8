"""Optax transformations in programs: the numbers of plain optax, state that is saved, rows of sparse gradients."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import paddle.fluid as fluid
import refluid
from refluid.bridges.transformations import Transformation
from refluid.errors import OpError

ROWS = "optax_row_update"
WHOLE = "optax_update"
JOINT = "optax_joint_update"
SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 5, 40)
# What the transformation looks at: elements, whole parameters, or several of them.
TRANSFORMATIONS = {
    "sgd": (optax.sgd(0.01), ROWS),
    "momentum": (optax.sgd(0.01, 0.9, nesterov=True), ROWS),
    "adam": (optax.adam(1e-3), ROWS),
    "adamw": (optax.adamw(SCHEDULE), ROWS),
    "rmsprop": (optax.rmsprop(1e-3), ROWS),
    "adagrad": (optax.adagrad(1e-2), ROWS),
    "lion": (optax.lion(1e-4), ROWS),
    "lamb": (optax.lamb(1e-3), WHOLE),
    "lars": (optax.lars(1e-2), WHOLE),
    "adafactor": (optax.adafactor(1e-3, min_dim_size_to_factor=4), WHOLE),
    "clipped": (optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-3)), JOINT),
    "finite": (optax.apply_if_finite(optax.adam(1e-3), 3), JOINT),
    "noise": (optax.chain(optax.add_noise(0.01, 0.5, 0), optax.sgd(0.01)), JOINT),
    "injected": (optax.inject_hyperparams(optax.adam)(learning_rate=SCHEDULE), ROWS),
    "accumulated": (optax.MultiSteps(optax.adam(1e-2), 4).gradient_transformation(), ROWS),
    "masked": (optax.adamw(1e-3, mask=lambda tree: {name: name.endswith("w_0") for name in tree}), ROWS),
    "labelled": (
        optax.multi_transform(
            {"weight": optax.adam(1e-3), "bias": optax.sgd(0.1)},
            {"fc_0.w_0": "weight", "fc_0.b_0": "bias", "fc_1.w_0": "weight", "fc_1.b_0": "bias"},
        ),
        ROWS,
    ),
    "schedule_free": (optax.contrib.schedule_free_sgd(1e-2), ROWS),  # its state begins with the parameters
}


def value(name):
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def model():
    x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 8, act="tanh")
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))


def batches(count):
    random = np.random.RandomState(0)
    for _ in range(count):
        x = random.rand(16, 6).astype("float32")
        yield {"x": x, "y": x.sum(1, keepdims=True)}


def started():
    fluid.default_startup_program().random_seed = 3
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def plain_losses(forward, loss, transformation, feeds):
    """Losses of the same function in a plain loop, from the parameters in the scope."""
    function, state = refluid.to_jax(forward, ["x", "y"], [loss])
    params = {p.name: value(p.name) for p in forward.all_parameters()}

    @jax.jit
    def step(params, memory, feed):
        found, grads = jax.value_and_grad(lambda p: function({**state, **p}, **feed)[0][0][0])(params)
        updates, memory = transformation.update(grads, memory, params)
        return found, optax.apply_updates(params, updates), memory

    memory, losses = transformation.init(params), []
    for feed in feeds:
        found, params, memory = step(params, memory, feed)
        losses.append(float(found))
    return losses


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_transformation_trains_as_in_plain_optax(name):
    transformation, kind = TRANSFORMATIONS[name]
    loss = model()
    forward = fluid.default_main_program().clone()
    refluid.OptaxOptimizer(transformation).minimize(loss)
    ops = [op.type for op in fluid.default_main_program().global_block().ops if op.type.startswith("optax")]
    assert set(ops) - {"optax_clock"} == {kind}
    exe = started()
    plain = plain_losses(forward, loss, transformation, batches(50))
    ours = [exe.run(feed=feed, fetch_list=[loss])[0].item() for feed in batches(50)]
    np.testing.assert_allclose(ours, plain, atol=1e-6, rtol=1e-6)
    assert ours[-1] < ours[0]


def test_adam_of_optax_follows_that_of_fluid():
    # Fluid adds epsilon to sqrt(v) before the bias is corrected, optax afterwards; the size of the epsilon hides it.
    curves = []
    for optimizer in (refluid.OptaxOptimizer(optax.adam(1e-3)), fluid.optimizer.Adam(1e-3)):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            loss = model()
            optimizer.minimize(loss)
            exe = started()
            curves.append([exe.run(feed=feed, fetch_list=[loss])[0].item() for feed in batches(50)])
    np.testing.assert_allclose(*curves, rtol=1e-5)


def test_hyperparameters_are_variables():
    loss = model()
    refluid.OptaxOptimizer(optax.inject_hyperparams(optax.sgd)(learning_rate=0.1), name="opt").minimize(loss)
    exe = started()
    (feed,) = batches(1)
    before = value("fc_0.w_0")
    rate = fluid.global_scope().find_var("opt.hyperparams.learning_rate").get_tensor()
    rate.set(np.zeros(1, "float32"), fluid.CPUPlace())
    exe.run(feed=feed)
    np.testing.assert_array_equal(value("fc_0.w_0"), before)
    rate.set(np.full(1, 0.2, "float32"), fluid.CPUPlace())
    exe.run(feed=feed)
    assert not np.array_equal(value("fc_0.w_0"), before)


def test_a_named_optimizer_counts_apart_for_every_loss():
    x, optimizer = fluid.layers.data("x", [2]), refluid.OptaxOptimizer(optax.adam(0.1), name="opt")
    for _ in range(2):
        optimizer.minimize(fluid.layers.mean(fluid.layers.fc(x, 1)))
    started().run(feed={"x": np.ones((1, 2), "float32")})
    assert [value(name).item() for name in ("opt.0.count", "opt.0.count_0")] == [1, 1]


def test_an_optimizer_without_parameters_does_nothing():
    x = fluid.layers.data("x", [2], stop_gradient=False)
    assert refluid.OptaxOptimizer(optax.adam(0.1)).minimize(fluid.layers.mean(x)) == ([], [])


def test_clipping_regularization_and_rates_of_single_parameters_come_before_the_transformation():
    x = fluid.layers.data("x", [2], append_batch_size=False)
    one = fluid.initializer.Constant(1.0)
    fast = fluid.layers.create_parameter(
        [2], "float32", attr=fluid.ParamAttr("fast", initializer=one, learning_rate=2.0)
    )
    slow = fluid.layers.create_parameter([2], "float32", attr=fluid.ParamAttr("slow", initializer=one))
    loss = fluid.layers.reduce_sum(x * fast + x * slow)
    optimizer = refluid.OptaxOptimizer(
        optax.sgd(0.1),
        regularization=fluid.regularizer.L2Decay(0.5),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0),
    )
    optimizer.apply_gradients(optimizer.backward(loss))  # the two halves of minimize
    started().run(feed={"x": np.array([3, 4], "float32")})
    clipped = np.array([3, 4]) / np.sqrt(50)
    np.testing.assert_allclose(value("slow"), 1 - 0.1 * (clipped + 0.5), rtol=1e-6)
    np.testing.assert_allclose(value("fast"), 1 - 0.2 * (clipped + 0.5), rtol=1e-6)


def embedded(transformation):
    ids = fluid.layers.data("ids", [1], dtype="int64")
    found = fluid.layers.embedding(ids, [5, 3], is_sparse=True, param_attr="table")
    loss = fluid.layers.reduce_sum(fluid.layers.square(found))
    refluid.OptaxOptimizer(transformation).minimize(loss)


def test_sparse_gradients_update_their_own_rows():
    embedded(optax.sgd(0.1, momentum=0.9))
    exe = started()
    first = value("table")
    exe.run(feed={"ids": np.array([[1], [3], [1]])})
    second = value("table")
    np.testing.assert_array_equal(second[[0, 2, 4]], first[[0, 2, 4]])
    np.testing.assert_allclose(second[1], first[1] - 0.1 * 4 * first[1], rtol=1e-6)  # twice in the batch
    exe.run(feed={"ids": np.array([[3]])})
    moving = 0.9 * 2 * first[3] + 2 * second[3]
    np.testing.assert_allclose(value("table")[3], second[3] - 0.1 * moving, rtol=1e-6)
    np.testing.assert_array_equal(value("table")[1], second[1])


@pytest.mark.parametrize(
    ("transformation", "reason"),
    [
        (optax.lamb(0.1), "needs whole gradients of it"),
        (
            TRANSFORMATIONS["finite"][0],
            "looks at several parameters at once: state that all parameters share depends on",
        ),
    ],
)
def test_sparse_gradients_of_transformations_that_need_all_of_it_are_refused(transformation, reason):
    problem = f"gradient of table is sparse, but the transformation {reason}"
    with pytest.raises(
        OpError, match=rf"{problem}(.|\n)*table  float32\[5, 3\](.|\n)*test_optax(.|\n)*is_sparse=False"
    ):
        embedded(transformation)


RESUME = """
import json, sys
from pathlib import Path
import flax.linen as nn, numpy as np, optax
import paddle.fluid as fluid, refluid
from refluid.random_state import program_random_state, restore_program_random_state

class Block(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x))
        return nn.Dropout(0.5, deterministic=not train)(x)

main, startup, scope = fluid.default_main_program(), fluid.default_startup_program(), fluid.global_scope()
main.random_seed = startup.random_seed = 3
x = fluid.layers.data("x", [6])
loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(refluid.flax_layer(Block(), x), 4, act="tanh")))
refluid.OptaxOptimizer(optax.adamw(optax.cosine_decay_schedule(0.1, 20))).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(startup)
folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
state = Path(folder + ".json")
if first:
    fluid.io.load_persistables(exe, folder)
    restore_program_random_state(json.loads(state.read_text()), scope, main)
for step in range(first, last):
    feed = {"x": np.random.RandomState(step).rand(3, 6).astype("float32")}
    print(exe.run(feed=feed, fetch_list=[loss])[0].tobytes().hex())
fluid.io.save_persistables(exe, folder)
state.write_text(json.dumps(program_random_state(scope, main)))
"""


def test_training_goes_on_in_another_process_with_the_same_bits(tmp_path):
    def run(folder, first, last):
        command = [sys.executable, "-c", RESUME, str(tmp_path / folder), str(first), str(last)]
        return subprocess.check_output(command, text=True).splitlines()

    assert run("a", 0, 3) + run("a", 3, 6) == run("b", 0, 6)


@pytest.mark.parametrize("make", [fluid.optimizer.SGD, fluid.optimizer.Adam])
def test_the_learning_rate_of_fluids_optimizers_may_be_a_schedule(make):
    schedule = optax.piecewise_constant_schedule(0.1, {2: 0.5})
    loss = model()
    optimizer = make(learning_rate=schedule)
    optimizer.minimize(loss)
    exe, rate = started(), optimizer._global_learning_rate()
    rates = [exe.run(feed=feed, fetch_list=[rate])[0].item() for feed in batches(5)]
    np.testing.assert_allclose(rates, [float(schedule(step)) for step in range(5)], rtol=1e-6)


@pytest.mark.parametrize("name", [name for name, (_, kind) in TRANSFORMATIONS.items() if kind is ROWS])
def test_what_works_element_by_element_gives_parts_what_it_gives_the_whole(name):
    """Not only by following the computation: for every such transformation here, on numbers."""
    random = np.random.RandomState(0)
    params = {"fc_0.w_0": random.randn(6, 4).astype("float32"), "fc_0.b_0": random.randn(4).astype("float32")}
    params |= {"fc_1.w_0": random.randn(4, 1).astype("float32"), "fc_1.b_0": random.randn(1).astype("float32")}
    transformation, _ = TRANSFORMATIONS[name]
    whole = Transformation(transformation, params)
    assert whole.separation.joint is None and not whole.separation.whole

    def after(rows):
        tree = {key: value[rows] if key == "fc_0.w_0" else value for key, value in params.items()}
        memory = transformation.init(tree)
        for step in range(3):
            grads = jax.tree.map(lambda p, step=step: (step + 1) * np.sin(7 * p), tree)
            updates, memory = transformation.update(grads, memory, tree)
            tree = optax.apply_updates(tree, updates)
        return tree["fc_0.w_0"]

    parts = np.concatenate([after(slice(0, 2)), after(slice(2, 6))])
    np.testing.assert_allclose(parts, after(slice(0, 6)), rtol=1e-6)


@pytest.mark.parametrize(
    ("begin", "number"),
    [
        (jnp.zeros_like, 0.0),
        (lambda p: jnp.full(p.shape, 2.0) / 8, 0.25),
        (jax.jit(lambda p: jnp.sqrt(jnp.ones_like(p))), 1.0),
        (
            lambda p: jnp.cumsum(jnp.zeros_like(p)).reshape(p.shape),
            0.0,
        ),  # not element by element, but equal all the same
        (lambda p: jnp.arange(p.size).reshape(p.shape), None),
        (lambda p: jnp.asarray(np.eye(3)), None),
        (lambda p: p * 2, None),
    ],
)
def test_states_that_begin_with_one_number_are_filled_with_it(begin, number):
    transformation = optax.GradientTransformation(lambda tree: jax.tree.map(begin, tree), lambda g, s, p=None: (g, s))
    whole = Transformation(transformation, {"w": jax.ShapeDtypeStruct((3, 3), np.float32)})
    assert whole.constant(whole.leaves[0]) == number


def with_text(params):
    return {"text": "hello"}


@pytest.mark.parametrize(
    ("transformation", "problem"),
    [
        (optax.GradientTransformation(with_text, lambda g, s, p=None: (g, s)), "type <class 'str'>"),
        (optax.contrib.reduce_on_plateau(), "value"),
        (
            optax.GradientTransformation(lambda p: (), lambda g, s, p=None: ({k: g[k].T for k in g}, s)),
            r"fc_0.w_0 has shape \[8, 6\]",
        ),
    ],
)
def test_a_transformation_that_cannot_be_an_optimizer_is_refused_with_the_users_line(transformation, problem):
    loss = model()
    with pytest.raises(OpError, match=f"cannot be used: .*{problem}(.|\n)*test_optax_optimizer.py"):
        refluid.OptaxOptimizer(transformation).minimize(loss)


def test_something_else_than_a_transformation_is_refused():
    with pytest.raises(TypeError, match="expected an optax transformation, such as optax.adam"):
        refluid.OptaxOptimizer(0.1)
