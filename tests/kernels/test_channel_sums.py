"""Sums per channel by the kernel agree with those of XLA, with their gradients, and batch_norm uses them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid import kernels
from refluid.kernels import channel_sums
from refluid.lowering.layout import channels_last
from refluid.ops.core import registry
from refluid.ops.nn import batch_norm


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def noise(*shape, seed=0):
    return jnp.asarray(np.random.RandomState(seed).randn(*shape).astype("float32"))


SUMS = {
    "sums": lambda x, center, g: jnp.sum(x, 0),
    "squares": lambda x, center, g: jnp.sum((x - center) ** 2, 0),
    "products": lambda x, center, g: (jnp.sum(g, 0), jnp.sum(g * (x - center), 0)),
}
TAKEN = {"sums": slice(1), "squares": slice(2), "products": slice(3)}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize(("rows", "channels"), [(1, 1), (2, 3), (65, 40), (1000, 17)])
def test_sums_and_their_gradients(name, rows, channels):
    given = noise(rows, channels), noise(channels, seed=1), noise(rows, channels, seed=2)

    def penalty(function):
        return lambda given: sum(jnp.sum(out**2) for out in jax.tree.leaves(function(*given)))

    def kernel(*given):
        return getattr(channel_sums, name)(*given[TAKEN[name]])

    for of in (lambda function: function, lambda function: lambda *given: jax.grad(penalty(function))(given)):
        found, expected = jax.jit(of(kernel))(*given), jax.jit(of(SUMS[name]))(*given)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * (1 + np.abs(b).max()))


@pytest.mark.parametrize("name", SUMS)
def test_the_result_does_not_depend_on_how_work_is_shared(name, monkeypatch):
    given = (noise(1000, 19), noise(19, seed=1), noise(1000, 19, seed=2))[TAKEN[name]]
    results = []
    for worth in (1 << 40, 1):
        monkeypatch.setattr(channel_sums, "_WORTH_A_THREAD", worth)
        results.append(jax.jit(lambda *given: getattr(channel_sums, name)(*given))(*given))
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_sums_of_many_large_values_are_as_exact_as_pairwise_ones():
    x = 100 + noise(200_000, 4)
    exact = np.asarray(x, "float64")
    np.testing.assert_allclose(jax.jit(channel_sums.sums)(x), exact.sum(0), rtol=2e-6)
    mean = exact.mean(0).astype("float32")
    np.testing.assert_allclose(jax.jit(channel_sums.squares)(x, mean), ((exact - mean) ** 2).sum(0), rtol=2e-6)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dims", [(5, 7), (3, 4, 2)])
def test_batch_norm_of_images_with_and_without_kernels(layout, dims, monkeypatch):
    monkeypatch.setattr(batch_norm, "_KERNEL_FROM", 1)
    shape = (3, 6, *dims) if layout == "NCHW" else (3, *dims, 6)
    x, scale, bias, y_grad = noise(*shape), noise(6, seed=1), noise(6, seed=2), noise(*shape, seed=3)
    statistics = jnp.zeros(6, "float32"), jnp.ones(6, "float32")
    forward, backward = registry.lookup("batch_norm"), registry.lookup("batch_norm_grad")

    def step(x, scale, bias, y_grad):
        slots = ("X", "Scale", "Bias", "Mean", "Variance")
        given = {slot: [value] for slot, value in zip(slots, (x, scale, bias, *statistics), strict=True)}
        out = forward.call(given, {"data_layout": layout})
        saved = {slot: out[slot] for slot in ("SavedMean", "SavedVariance")}
        return out, backward.call({**given, **saved, "Y@GRAD": [y_grad]}, {"data_layout": layout})

    results = []
    for allowed in (True, False):
        with kernels.allowed(allowed):
            wrap = channels_last if allowed else (lambda function: function)
            results.append(jax.jit(wrap(step))(x, scale, bias, y_grad))
    for slot in results[0][0]:
        np.testing.assert_allclose(results[0][0][slot][0], results[1][0][slot][0], rtol=1e-5, atol=1e-5)
    for slot in results[0][1]:
        np.testing.assert_allclose(results[0][1][slot][0], results[1][1][slot][0], rtol=1e-4, atol=1e-4)
    space = tuple(i for i in range(x.ndim) if i != (1 if layout == "NCHW" else x.ndim - 1))
    np.testing.assert_allclose(results[0][0]["SavedMean"][0], np.asarray(x).mean(space), rtol=1e-5, atol=1e-6)
