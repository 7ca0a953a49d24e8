"""Kernels that pool regions and sample images agree with operations that any backend has, however work is shared."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid import kernels
from refluid.kernels import region_max, regions, taps
from refluid.ops.core.values import Ragged
from refluid.ops.detection import regions as rules
from refluid.ops.detection.roi_pool import roi_pool
from refluid.ops.detection.sampling import sum_rows

IMAGES, CHANNELS, HEIGHT, WIDTH = 3, 19, 6, 7


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def noise(*shape, seed=0):
    return jnp.asarray(np.random.RandomState(seed).randn(*shape).astype("float32"))


def both_ways(function, weights, *arguments):
    """The results, and the gradients of their weighted sum: by kernels, and without them."""

    def total(*arguments):
        out = function(*arguments)
        return jnp.sum(out * weights), out

    found = []
    for allowed in (True, False):
        with kernels.allowed() if allowed else nullcontext():
            jitted = jax.jit(jax.value_and_grad(total, tuple(range(len(arguments))), has_aux=True))
            found.append(jitted(*arguments))
    return found


def assert_close(pair):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), *pair)


def boxes(count, room=0):
    """Regions of three images, the second without any; padding is a copy of the first one."""
    corner = np.random.RandomState(1).uniform(-3, 9, (count, 2))
    rows = np.concatenate([corner, corner + np.random.RandomState(2).uniform(0, 12, (count, 2))], 1).astype("float32")
    rows = np.concatenate([rows, np.repeat(rows[:1], room, 0)])
    return Ragged(jnp.asarray(rows), (jnp.asarray([0, count // 2, count // 2, count], jnp.int32),), 8)


def sparse_weights(count, bins, size, seed):
    random = np.random.RandomState(seed)
    inside = np.abs(np.arange(size) - random.randint(0, size, (count, bins, 1))) < random.randint(
        0, 3, (count, bins, 1)
    )
    return jnp.asarray(np.where(inside, random.randn(count, bins, size), 0).astype("float32"))


@pytest.mark.parametrize(("count", "room"), [(1, 0), (9, 0), (5, 4)])
def test_weighted_sums_over_regions(count, room):
    found = rules.Regions.of(boxes(count, room), IMAGES)
    down, across = sparse_weights(count + room, 2, HEIGHT, 3), sparse_weights(count + room, 3, WIDTH, 4)
    real = (jnp.arange(count + room) < count)[:, None, None, None]
    # Of weights that are zero the kernel leaves the gradients out, and no gradient comes from padding.
    support = (down != 0, across != 0)

    def pool(x, down, across):
        weights = (jnp.where(used, w, 0) for used, w in zip(support, (down, across), strict=True))
        return jnp.where(real, rules.pool_regions(x, found, *weights), 0)

    weights = noise(count + room, CHANNELS, 2, 3, seed=5)
    assert_close(both_ways(pool, weights, noise(IMAGES, CHANNELS, HEIGHT, WIDTH), down, across))


@pytest.mark.parametrize(("count", "room"), [(1, 0), (9, 0), (5, 4)])
def test_maxima_over_regions(count, room):
    found, attrs = boxes(count, room), {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.7}
    real = (jnp.arange(count + room) < count)[:, None, None, None]

    def pool(x):
        return jnp.where(real, roi_pool(x, found, **attrs)[0].data, 0)

    x = jnp.round(2 * noise(IMAGES, CHANNELS, HEIGHT, WIDTH))  # many are equal
    assert_close(both_ways(pool, noise(count + room, CHANNELS, 2, 3, seed=5), x))


def test_nan_is_never_the_largest():
    x = jnp.where(jnp.arange(WIDTH) % 3 == 0, noise(IMAGES, 2, HEIGHT, WIDTH), jnp.nan)
    attrs = {"pooled_height": 5, "pooled_width": 6, "spatial_scale": 0.5}
    results = []
    for allowed in (True, False):
        with kernels.allowed(allowed):
            results.append(jax.jit(lambda x: [found.data for found in roi_pool(x, boxes(7), **attrs)])(x))
    jax.tree.map(np.testing.assert_array_equal, *results)
    out, places = map(np.asarray, results[0])
    assert not np.isnan(out).any()
    assert (places == -1).any() and (places >= 0).any()
    assert ((places == -1) == ((out == 0) | (out == np.finfo("float32").min))).all()


def test_padding_is_a_copy_of_a_real_region():
    found = rules.Regions.of(boxes(2, 3), IMAGES)
    down, across = jnp.ones((5, 2, HEIGHT)), jnp.ones((5, 3, WIDTH))
    with kernels.allowed():
        x = noise(IMAGES, CHANNELS, HEIGHT, WIDTH)
        out = jax.jit(lambda x: rules.pool_regions(x, found, down.astype("float32"), across.astype("float32")))(x)
        largest = jax.jit(lambda x: roi_pool(x, boxes(2, 3), pooled_width=2)[0].data)(x)
    for rows in (out, largest):
        assert all(any((padding == real).all() for real in rows[:2]) for padding in rows[2:])


@pytest.mark.parametrize("number", [1, 3, 4])
def test_sums_of_a_few_rows(number):
    random = np.random.RandomState(0)
    places = jnp.asarray(random.randint(0, 11, (13, number)))
    weights = noise(13, number, seed=1) * (random.rand(13, number) < 0.7)

    def gather(rows, weights):
        return sum_rows(rows, places, weights)

    assert_close(both_ways(gather, noise(13, 37, seed=2), noise(11, 37), weights))


@pytest.mark.parametrize("module", [regions, region_max, taps])
def test_the_result_does_not_depend_on_how_work_is_shared(module, monkeypatch):
    found = rules.Regions.of(boxes(9), IMAGES)
    down, across = sparse_weights(9, 2, HEIGHT, 3), sparse_weights(9, 3, WIDTH, 4)
    places = jnp.asarray(np.random.RandomState(0).randint(0, 11, (13, 4)))
    runs = {
        regions: (lambda x: rules.pool_regions(x, found, down, across), noise(IMAGES, 70, HEIGHT, WIDTH)),
        region_max: (lambda x: roi_pool(x, boxes(9), pooled_height=2)[0].data, noise(IMAGES, 70, HEIGHT, WIDTH)),
        taps: (lambda x: sum_rows(x, places, noise(13, 4)), noise(11, 70)),
    }
    run, x = runs[module]
    results = []
    for worth in (1 << 40, 1):
        monkeypatch.setattr(module, "_WORTH_A_THREAD", worth)
        with kernels.allowed():
            results.append(jax.jit(lambda x: jax.value_and_grad(lambda x: jnp.sum(run(x) ** 2))(x))(x))
    jax.tree.map(np.testing.assert_array_equal, *results)
