"""Products by kernels agree with NumPy's and with XLA's, whatever the shapes and however the work is shared."""

from __future__ import annotations

import importlib.util
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding
from numba import njit

import paddle.fluid as fluid
from refluid import kernels
from refluid.kernels import matmul as kernel
from refluid.kernels import tiles
from refluid.kernels.matmul import Form, matmul
from refluid.ops.control import step_loop
from refluid.ops.control.equations import Equations
from refluid.ops.core import registry

SHAPES = ((1, 1, 1), (6, 256, 32), (7, 257, 33), (64, 784, 200), (13, 5, 300), (70, 600, 17))
FORMS = list(Form)


def operands(form, height, depth, width, seed=0):
    random = np.random.RandomState(seed)
    x, y = (height, depth), (depth, width)
    x, y = x[::-1] if form is Form.OF_TRANSPOSE else x, y[::-1] if form is Form.BY_TRANSPOSE else y
    return random.randn(*x).astype("float32"), random.randn(*y).astype("float32")


def plain(form, x, y):
    return (x.T if form is Form.OF_TRANSPOSE else x) @ (y.T if form is Form.BY_TRANSPOSE else y)


def compiled(form, x, y):
    return jax.jit(lambda x, y: matmul(form, x, y))(x, y)


def assert_close(got, form, x, y):
    exact = plain(form, x.astype("float64"), y.astype("float64"))
    bound = plain(form, np.abs(x), np.abs(y)) * 1e-6  # what rounding can do to a sum
    assert (np.abs(got - exact) <= bound).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product(form, shape):
    x, y = operands(form, *shape)
    assert_close(compiled(form, x, y), form, x, y)


def test_a_product_of_no_depth_is_zero():
    assert not np.asarray(compiled(Form.PLAIN, np.ones((8, 0), "float32"), np.ones((0, 20), "float32"))).any()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(FORMS), st.integers(1, 40), st.integers(1, 40), st.integers(1, 70))
def test_product_of_any_shape(form, height, depth, width):
    x, y = operands(form, height, depth, width)
    assert_close(compiled(form, x, y), form, x, y)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_gradients(form):
    x, y = operands(form, 9, 20, 35)
    weights = jnp.cos(jnp.arange(9 * 35, dtype="float32")).reshape(9, 35)

    def gradients(product):
        loss = jax.grad(lambda x, y: (jnp.tanh(product(form, x, y)) * weights).sum(), (0, 1))
        squares = jax.grad(lambda *xy: sum((g * g).sum() for g in loss(*xy)), (0, 1))
        return jax.jit(lambda *xy: (loss(*xy), squares(*xy)))(x, y)

    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)  # noqa: E731
    jax.tree.map(close, gradients(matmul), gradients(plain))


@pytest.mark.parametrize("form", FORMS)
def test_the_result_does_not_depend_on_how_work_is_shared(form, monkeypatch):
    x, y = operands(form, 200, 300, 100)
    results = []
    for worth in (1 << 40, 1 << 20, 1):
        monkeypatch.setattr(kernel, "_WORTH_A_THREAD", worth)
        results.append(compiled(form, x, y))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_not_a_number_and_infinity_stay_in_their_rows():
    x, y = operands(Form.PLAIN, 20, 30, 40)
    x[3, 7], x[11, 2] = np.nan, np.inf
    got = np.asarray(compiled(Form.PLAIN, x, y))
    assert np.isnan(got[3]).all()
    assert np.isinf(got[11]).all()
    assert np.isfinite(np.delete(got, [3, 11], axis=0)).all()


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(5, 6\) do not fit as PLAIN"):
        matmul(Form.PLAIN, jnp.zeros((3, 4)), jnp.zeros((5, 6)))


def test_tiles_for_wider_registers():
    """The code for machines with AVX-512, as LLVM compiles it for this one."""
    with mock.patch.object(binding, "get_host_cpu_features", lambda: {"avx512f": True}):
        spec = importlib.util.spec_from_file_location("wider_tiles", tiles.__file__)
        wider = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(wider)
    assert wider.WIDTH == 32
    multiply = njit(lambda out, a, b: wider.multiply(out, a, b))
    for form in (Form.PLAIN, Form.BY_TRANSPOSE):
        x, y = operands(form, 20, 300, 75)
        out = np.empty((20, 75), "float32")
        multiply(out, x, y.T if form is Form.BY_TRANSPOSE else y)
        assert_close(out, form, x, y)


@pytest.mark.parametrize(("rows", "used"), [(64, True), (8, False), (4096, False)])
def test_ops_use_it_for_products_of_middle_size(rows, used):
    x, y = jnp.ones((rows, 128)), jnp.ones((128, 128))
    for name in ("mul", "matmul"):
        rule = registry.lookup(name).rule
        with kernels.allowed():
            text = jax.jit(lambda x, y, rule=rule: rule(x, y)).lower(x, y).as_text()
        assert ("refluid_kernel" in text) == used
        assert "refluid_kernel" not in jax.jit(lambda x, y, rule=rule: rule(x, y)).lower(x, y).as_text()


def test_loops_still_know_their_products(monkeypatch):
    """Their gradients with respect to weights are one large product after the loop."""
    seen = []
    monkeypatch.setattr(step_loop, "Equations", lambda *args: seen.append(Equations(*args)) or seen[-1])
    multiply = registry.lookup("mul").rule

    def run(weight, rows, state):
        def step(time, outside, now, states):
            after = jnp.tanh(now[0] + multiply(states[0], outside))
            return [after], [after]

        frame = step_loop.Frame(jnp.arange(4) * 64, jnp.int32(3), 64, 3 * 64)
        return step_loop.step_loop(step, frame, weight, [rows], [state])[1][0].sum()

    arguments = jnp.ones((128, 128)), jnp.ones((4 * 64, 128)), jnp.ones((64, 128))
    with kernels.allowed():
        text = jax.jit(jax.grad(run)).lower(*arguments).as_text()
    assert seen[0].products
    assert "refluid_kernel" not in text


def losses():
    """Five steps of a small network, whose layers are wide enough for kernels."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, label = fluid.data("x", [None, 96]), fluid.data("label", [None, 1], "int64")
        hidden = fluid.layers.fc(fluid.layers.fc(x, 128, act="relu"), 96, act="tanh")
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(hidden, 10), label))
        fluid.optimizer.Adam(0.01).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    random = np.random.RandomState(0)
    feed = {"x": random.randn(64, 96).astype("float32"), "label": random.randint(0, 10, (64, 1))}
    return [float(exe.run(main, feed, [loss], scope=scope)[0][0]) for _ in range(5)]


def test_training_does_not_change(monkeypatch):
    with_kernels = losses()
    monkeypatch.setenv("REFLUID_KERNELS", "0")
    np.testing.assert_allclose(with_kernels, losses(), rtol=1e-5)
