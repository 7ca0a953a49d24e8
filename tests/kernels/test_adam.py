"""Adam by a kernel agrees with the op's rule, and is used only where it may be."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paddle.fluid as fluid
from refluid import kernels
from refluid.errors import OutOfRangeError
from refluid.kernels import adam as kernel
from refluid.ops.core.registry import lookup
from refluid.ops.optimizer import adaptive as optimizer_adaptive

SHAPES = ((1,), (15,), (16, 1), (33, 70), (5, 3, 3, 2), (200, 200))
BETA1, BETA2, EPSILON = 0.8, 0.99, 1e-6


def updates(shapes=SHAPES, seed=0):
    random = np.random.RandomState(seed)
    made = []
    for n, shape in enumerate(shapes):
        param, grad, moment1 = (random.randn(*shape).astype("float32") for _ in range(3))
        numbers = [np.array([value], "float32") for value in (0.01 * (n + 1), BETA1 ** (n + 1), BETA2 ** (n + 1))]
        rate, *powers = numbers
        made.append([param, grad, rate, moment1, (0.1 + random.rand(*shape)).astype("float32"), *powers])
    return jax.tree.map(jnp.asarray, made)


def by_kernel(given):
    return jax.jit(lambda given: kernel.adam(given, BETA1, BETA2, EPSILON))(given)


def by_rule(given):
    rule = lookup("adam").rule
    return [list(rule(*update, beta1=BETA1, beta2=BETA2, epsilon=EPSILON)) for update in given]


def test_update_of_many_parameters():
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-7)  # noqa: E731
    jax.tree.map(close, by_kernel(updates()), by_rule(updates()))


def test_what_was_given_is_not_changed_unless_it_is_given_away():
    given = updates()
    before = jax.tree.map(np.array, given)
    by_kernel(given)
    jax.tree.map(np.testing.assert_array_equal, given, before)


def test_the_result_does_not_depend_on_how_work_is_shared(monkeypatch):
    results = []
    for worth in (1 << 40, 1 << 14, 1):
        monkeypatch.setattr(kernel, "_WORTH_A_THREAD", worth)
        results.append(by_kernel(updates()))
    for result in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, result, results[0])


def test_not_a_number_stays_where_it_is():
    given = updates([(40,)])
    given[0][1] = given[0][1].at[7].set(jnp.nan)
    param, moment1, moment2, power1, power2 = map(np.asarray, by_kernel(given)[0])
    for values in (param, moment1, moment2):
        assert np.flatnonzero(np.isnan(values)).tolist() == [7]
    assert np.isfinite([power1, power2]).all()


def test_moments_are_exact_when_gradients_grow():
    given = updates([(100,)])
    given[0][1] = given[0][1] * 1e4
    (kernels_own,), (expected,) = by_kernel(given), by_rule(given)
    for got, wanted in zip(kernels_own[1:3], expected[1:3], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=5e-7)


@pytest.mark.parametrize("value", [1e25, np.inf, -np.inf])
def test_what_is_too_large_is_infinite(value):
    given = updates([(40,)])
    given[0][1] = given[0][1].at[7].set(value)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-7), by_kernel(given), by_rule(given))


def network(is_sparse=False, hidden=128, ids_from=""):
    """A program with its feed. Its ids are fed, or computed from what is fed or from state, too."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids, x = fluid.data("ids", [None, 1], "int64"), fluid.data("x", [None, 96])
        largest = fluid.layers.reduce_max(x, dim=1, keep_dim=True)
        if ids_from == "state":
            largest = largest + fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
        ids = fluid.layers.cast(largest, "int64") if ids_from else ids
        embedded = fluid.layers.embedding(ids, (50, 32), is_sparse=is_sparse)
        joined = fluid.layers.concat([fluid.layers.reshape(embedded, [-1, 32]), x], axis=1)
        slow = fluid.ParamAttr(learning_rate=0.5)
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(joined, hidden, act="tanh"), 1, param_attr=slow))
        fluid.optimizer.Adam(fluid.layers.exponential_decay(0.01, 2, 0.5)).minimize(loss)
    random = np.random.RandomState(0)
    feed = {"ids": random.randint(0, 50, (8, 1)), "x": random.rand(8, 96).astype("float32")}
    return main, startup, loss, feed


def state_after(steps, **options):
    main, startup, loss, feed = network(**options)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    for _ in range(steps):
        exe.run(main, feed, [loss], scope=scope)
    names = sorted(v.name for v in main.list_vars() if v.persistable)
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


@pytest.fixture
def calls(monkeypatch):
    """How many parameters each traced call of the kernel updates."""
    made = []
    original = kernel.adam
    monkeypatch.setattr(kernel, "adam", lambda updates, *args: made.append(len(updates)) or original(updates, *args))
    return made


@pytest.mark.parametrize(("is_sparse", "dense"), [(False, 5), (True, 4)])
def test_training_does_not_change(is_sparse, dense, calls, monkeypatch):
    by_kernels = state_after(4, is_sparse=is_sparse)
    assert calls == [dense]
    monkeypatch.setenv("REFLUID_KERNELS", "0")
    for name, value in state_after(4, is_sparse=is_sparse).items():
        np.testing.assert_allclose(by_kernels[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_small_models_do_without_it(calls):
    state_after(1, hidden=4)
    assert not calls


@pytest.mark.parametrize(("ids_from", "used"), [("feed", True), ("state", False)])
def test_a_step_that_may_have_to_be_undone_does_without_it(ids_from, used, calls):
    main, startup, loss, feed = network(ids_from=ids_from)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    exe.run(main, feed, [loss], scope=scope)
    assert bool(calls) == used
    name = main.all_parameters()[0].name
    before = np.array(scope.find_var(name).get_tensor())
    with pytest.raises(OutOfRangeError):
        exe.run(main, {**feed, "x": feed["x"] + 1000}, [loss], scope=scope)
    np.testing.assert_array_equal(scope.find_var(name).get_tensor(), before)


def test_other_dtypes_and_shapes_are_left_to_the_rule():
    good, halves, short, scalar = (updates([(200, 200)])[0] for _ in range(4))
    halves[1], short[1], scalar[2] = halves[1].astype("bfloat16"), short[1][:100], scalar[2].reshape(())
    given = [[*update, None, None] for update in (good, halves, short, scalar)]
    with kernels.allowed():
        results = optimizer_adaptive._adam_in_one_pass(given)
    assert [result is not None for result in results] == [True, False, False, False]


def test_an_update_inside_a_branch_is_left_to_the_rule(calls):
    """Gradients may flow through the branch, and none flow through a kernel."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, flag = fluid.data("x", [200, 200]), fluid.data("flag", [1], "bool")
        values = {"Param": 1.0, "Moment1": 0.0, "Moment2": 0.0, "Beta1Pow": 0.9, "Beta2Pow": 0.999}
        state = {
            slot: fluid.layers.create_global_var([1] if "Pow" in slot else [200, 200], value, "float32", True)
            for slot, value in values.items()
        }
        rate = fluid.layers.create_global_var([1], 0.1, "float32", True)
        weight = fluid.layers.create_parameter([200, 200], "float32")

        def updated():
            inputs = {**state, "Grad": fluid.layers.scale(x, 2.0), "LearningRate": rate}
            outputs = {f"{slot}Out": value for slot, value in state.items()}
            fluid.default_main_program().current_block().append_op("adam", inputs, outputs)
            return state["Param"] * weight * x

        loss = fluid.layers.mean(fluid.layers.cond(flag, updated, lambda: weight * x))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    exe.run(main, {"x": np.ones((200, 200), "float32"), "flag": np.array([True])}, [loss], scope=scope)
    np.testing.assert_allclose(scope.find_var(state["Param"].name).get_tensor(), 0.9, rtol=1e-6)
    assert not calls
