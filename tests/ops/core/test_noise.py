"""The random numbers behind random ops: even, independent from place to place, unrelated from key to key."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from refluid.ops.core import noise

COUNT = 1 << 18


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def raw_key(first, second):
    return jax.random.wrap_key_data(jnp.array([first, second], jnp.uint32))


def correlation(a, b):
    """In standard deviations of what independent numbers would give."""
    return abs(float(np.corrcoef(a, b)[0, 1])) * math.sqrt(len(a))


def test_numbers_fill_the_interval_evenly():
    drawn = np.asarray(noise.uniform(jax.random.key(0), (COUNT,), np.float32))
    counts, _ = np.histogram(drawn, 256, (0.0, 1.0))
    chi_square = ((counts - COUNT / 256) ** 2 / (COUNT / 256)).sum()
    assert drawn.min() >= 0.0 and drawn.max() < 1.0
    assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize("distance", [1, 2, 8, 512, 4096])
def test_numbers_do_not_depend_on_their_neighbours(distance):
    drawn = np.asarray(noise.uniform(jax.random.key(0), (COUNT,), np.float32))
    assert correlation(drawn[:-distance], drawn[distance:]) < 4.5


@pytest.mark.parametrize(
    "key_of",
    [
        lambda step: raw_key(0, step),
        lambda step: raw_key(step, 0),
        lambda step: noise.fold_in(jax.random.key(0), step),
        jax.random.key,
    ],
    ids=["second word", "first word", "fold_in", "seed"],
)
def test_close_keys_give_unrelated_numbers(key_of):
    rows = [np.asarray(noise.uniform(key_of(step), (1 << 14,), np.float32)) for step in range(8)]
    for i, one in enumerate(rows):
        for other in rows[i + 1 :]:
            assert correlation(one, other) < 4.5
            assert correlation(one[1:], other[:-1]) < 4.5
            assert correlation(one[:-1], other[1:]) < 4.5


def test_a_place_is_even_over_many_steps():
    masks = [np.asarray(noise.keep_mask(noise.fold_in(jax.random.key(3), i), 0.5, (512,))) for i in range(256)]
    means = np.mean(masks, 0)
    assert means.std() == pytest.approx(math.sqrt(0.25 / 256), rel=0.15)


@pytest.mark.parametrize("probability", [0.1, 0.25, 0.5, 0.9])
def test_masks_drop_with_their_probability(probability):
    kept = np.asarray(noise.keep_mask(jax.random.key(1), probability, (COUNT,))).mean()
    assert kept == pytest.approx(1 - probability, abs=5 * math.sqrt(probability * (1 - probability) / COUNT))


def test_masks_of_certain_outcomes():
    assert np.asarray(noise.keep_mask(jax.random.key(1), 0.0, (1000,))).all()
    assert not np.asarray(noise.keep_mask(jax.random.key(1), 1.0, (1000,))).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_have_normal_moments(dtype):
    drawn = np.asarray(noise.normal(jax.random.key(0), (COUNT,), dtype, 1.0, 2.0))
    standard = (drawn.astype(np.float64) - 1.0) / 2.0
    assert drawn.dtype == dtype
    assert np.isfinite(drawn).all()
    moments = [(standard**power).mean() for power in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.05)


def test_truncated_normal_numbers_stay_within_two_deviations():
    drawn = np.asarray(noise.truncated_normal(jax.random.key(0), (COUNT,), np.float32, 1.0, 0.5))
    assert drawn.min() >= 0.0 and drawn.max() <= 2.0
    assert drawn.mean() == pytest.approx(1.0, abs=0.005)
    assert drawn.std() == pytest.approx(0.5 * 0.8796, abs=0.005)  # sqrt(1 - 4 phi(2) / (2 Phi(2) - 1))


def test_integers_are_even_and_keep_their_width():
    drawn = np.asarray(noise.integers(jax.random.key(0), (70000,), np.int64, -3, 4))
    assert drawn.dtype == np.int64
    np.testing.assert_allclose(np.bincount(drawn + 3), np.full(7, 10000), atol=500)


def test_the_same_key_gives_the_same_numbers_inside_and_outside_jit():
    draw = lambda key: noise.bits(noise.fold_in(key, 7), (5, 3))  # noqa: E731
    key = jax.random.key(11)
    np.testing.assert_array_equal(draw(key), jax.jit(draw)(key))
