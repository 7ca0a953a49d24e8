"""The kernel of depthwise convolutions agrees with XLA's convolution, however a kernel slides and work is shared."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid import kernels
from refluid.kernels import depthwise
from refluid.ops.nn.conv import forms
from refluid.ops.nn.conv.choice import Forms, choose
from refluid.ops.nn.conv.rules import conv2d, conv2d_transpose
from refluid.ops.nn.conv.window import Window


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def noise(*shape, seed=0, dtype="float32"):
    return jnp.asarray(np.random.RandomState(seed).randn(*shape).astype(dtype))


# dims, channels, kernel, strides, dilations, pads
WINDOWS = {
    "same": ((7, 9), 32, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    "few channels": ((5, 6), 3, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    "channels that do not fill a vector": ((6, 5), 41, (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1))),
    "5x5": ((9, 8), 16, (5, 5), (1, 1), (1, 1), ((2, 2), (2, 2))),
    "5x5 / 2": ((9, 8), 17, (5, 5), (2, 2), (1, 1), ((2, 2), (2, 2))),
    "uneven padding": ((8, 7), 8, (3, 3), (2, 2), (1, 1), ((0, 1), (2, 0))),
    "dilated": ((9, 11), 20, (3, 3), (1, 1), (2, 3), ((2, 2), (3, 1))),
    "dilated / 2": ((10, 11), 8, (3, 3), (2, 2), (2, 2), ((2, 2), (2, 2))),
    "strides beyond the kernel": ((11, 10), 8, (2, 2), (3, 4), (1, 1), ((0, 0), (0, 0))),
    "different sides": ((6, 9), 8, (1, 7), (2, 1), (1, 1), ((0, 0), (3, 3))),
    "wider than the image": ((2, 1), 8, (5, 4), (1, 1), (1, 1), ((2, 2), (2, 2))),
    "padding that only some positions leave": ((3, 3), 8, (2, 2), (1, 1), (1, 1), ((3, 3), (4, 2))),
}


def case(name):
    dims, channels, kernel, strides, dilations, pads = WINDOWS[name]
    window = Window(kernel, strides, dilations, pads, channels)
    positions = window.positions(dims)
    x, w = noise(3, *dims, channels), noise(*kernel, 1, channels, seed=1)
    return window.fitted(dims, positions), dims, x, w, noise(3, *positions, channels, seed=2)


@pytest.mark.parametrize("name", WINDOWS)
def test_all_products_are_those_of_xla(name):
    window, dims, x, w, g = case(name)
    expected = jax.jit(forms.correlate_lax, static_argnums=2)(x, w, window)
    _, pullback = jax.vjp(lambda x, w: forms.correlate_lax(x, w, window), x, w)
    found = jax.jit(depthwise.correlate, static_argnums=2)(x, w, window)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    products = [
        jax.jit(depthwise.spread, static_argnums=(2, 3))(g, w, window, dims),
        jax.jit(depthwise.weight_gradient, static_argnums=2)(x, g, window),
    ]
    for found, expected in zip(products, pullback(g), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["same", "channels that do not fill a vector", "dilated / 2"])
def test_the_result_does_not_depend_on_how_work_is_shared(name, monkeypatch):
    window, dims, x, w, g = case(name)
    results = []
    for worth in (1 << 40, 1):
        monkeypatch.setattr(depthwise, "_WORTH_A_THREAD", worth)
        run = jax.jit(
            lambda x, w, g: (
                depthwise.correlate(x, w, window),
                depthwise.spread(g, w, window, dims),
                depthwise.weight_gradient(x, g, window),
            )
        )
        results.append(run(x, w, g))
    jax.tree.map(np.testing.assert_array_equal, *results)


def attributes_and_arguments(rule, times, dtype="float32"):
    shape = (4 * times, 1, 3, 3) if rule is conv2d else (4, times, 3, 3)
    arguments = noise(2, 4, 6, 5, dtype=dtype), noise(*shape, seed=1, dtype=dtype)
    return {"strides": (2, 1), "paddings": (1, 0, 1, 2), "groups": 4}, arguments


def with_and_without_kernels(function, arguments):
    for allowed in (True, False):
        with kernels.allowed(allowed):
            yield jax.jit(lambda *given: function(*given))(*arguments)


@pytest.mark.parametrize("rule", [conv2d, conv2d_transpose])
def test_gradients_of_gradients(rule):
    attrs, arguments = attributes_and_arguments(rule, times=1)

    def penalty(x, w):
        first = jax.grad(lambda x, w: jnp.sum(rule(x, w, **attrs) ** 3), (0, 1))(x, w)
        return sum(jnp.sum(each**2) for each in first)

    results = with_and_without_kernels(jax.grad(penalty, (0, 1)), arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max()), *results)


@pytest.mark.parametrize(("times", "dtype"), [(3, "float32"), (1, "float64")])
def test_several_filters_per_channel_and_float64(times, dtype):
    attrs, (x, w) = attributes_and_arguments(conv2d, times, dtype)

    def by_xla(x, w):
        pads, numbers = [(1, 0), (1, 2)], ("NCHW", "OIHW", "NCHW")
        return jax.lax.conv_general_dilated(
            x, w, (2, 1), pads, dimension_numbers=numbers, feature_group_count=attrs["groups"]
        )

    def loss(function):
        return jax.value_and_grad(lambda x, w: jnp.sum(function(x, w) ** 2), (0, 1))

    with kernels.allowed():
        found = jax.jit(loss(lambda x, w: conv2d(x, w, **attrs)))(x, w)
    expected = jax.jit(loss(by_xla))(x, w)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4), found, expected)


def test_nan_and_infinity_reach_what_reads_them():
    x = noise(1, 5, 5, 16).at[0, 2, 2].set(jnp.nan).at[0, 0, 0].set(jnp.inf)
    window, w = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 16), jnp.ones((3, 3, 1, 16), "float32")
    found = np.asarray(jax.jit(depthwise.correlate, static_argnums=2)(x, w, window))
    np.testing.assert_array_equal(np.isnan(found[0, ..., 0]), np.pad(np.ones((3, 3), bool), 1))
    assert (found[0, 0, :2] == np.inf).all() and np.isfinite(found[0, 4]).all()


def test_what_the_kernel_cannot_do_stays_as_shifts():
    window = Window((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 8)
    volume = Window((3, 3, 3), (1, 1, 1), (1, 1, 1), ((1, 1), (1, 1), (1, 1)), 8)
    kernel, shifts = Forms("kernel", "kernel", "kernel"), Forms("shifts", "shifts", "shifts")
    with kernels.allowed():
        assert choose(window, 4, (9, 9), 8, 8, np.dtype("float32")) == kernel
        assert choose(window, 4, (9, 9), 8, 16, np.dtype("float32")) == shifts
        assert choose(window, 4, (9, 9), 8, 8, np.dtype("float64")) == shifts
        assert choose(volume, 4, (9, 9, 9), 8, 8, np.dtype("float32")) == shifts
    assert choose(window, 4, (9, 9), 8, 8, np.dtype("float32")) == shifts
