"""Samples of distributions, which are random, and mistakes. Densities and divergences are compared in golden/."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid

layers = fluid.layers


def run(*fetches, **feed):
    return fluid.Executor().run(feed=feed, fetch_list=list(fetches))


def test_samples_have_mean_and_deviation_of_their_distribution():
    normal = layers.Normal([1.0, -2.0], [0.5, 3.0]).sample([4000], seed=3)
    uniform = layers.Uniform(-1.0, 3.0).sample([4000])
    drawn, flat = run(normal, uniform)
    assert (drawn.shape, flat.shape) == ((4000, 2), (4000,))
    np.testing.assert_allclose(drawn.mean(0), [1, -2], atol=0.2)
    np.testing.assert_allclose(drawn.std(0), [0.5, 3], rtol=0.1)
    assert -1 <= flat.min() < -0.9
    assert 2.9 < flat.max() <= 3
    np.testing.assert_allclose(flat.mean(), 1, atol=0.1)


def test_samples_of_variables_have_as_many_columns_as_the_batch():
    low, high = layers.data("low", [2]), layers.data("high", [2])
    drawn = [kind(low, high).sample([4]) for kind in (layers.Uniform, layers.Normal)]
    ends = np.float32([[0, 10], [20, 30], [40, 50]])
    uniform, normal = run(*drawn, low=ends, high=ends + 1)
    assert uniform.shape == normal.shape == (4, 3, 2)
    assert ((ends <= uniform) & (uniform <= ends + 1)).all()


def test_outside_of_its_ends_a_uniform_distribution_has_no_density():
    x = layers.data("x", [2])
    (found,) = run(layers.Uniform(0.0, 2.0).log_prob(x), x=np.float32([[1, 3], [-1, 0.5]]))
    np.testing.assert_allclose(found, [[-np.log(2), -np.inf], [-np.inf, -np.log(2)]], rtol=1e-6)


def test_parameters_may_be_lists():
    categorical = layers.Categorical([[0.0, 0.0]])
    vectors = layers.MultivariateNormalDiag([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])
    numbers = layers.Normal([0.0, 0.0], np.ones(2))
    entropies = run(categorical.entropy(), vectors.entropy(), numbers.entropy())
    for found, expected in zip(entropies, (np.log(2), 1 + np.log(2 * np.pi), 0.5 + np.log(2 * np.pi) / 2), strict=True):
        np.testing.assert_allclose(found, np.full(found.shape, expected), rtol=1e-6)


def test_mistakes_are_told():
    x = layers.data("x", [1])
    with pytest.raises(TypeError, match="low"):
        layers.Uniform(0, 2.0)
    with pytest.raises(ValueError, match="Normal: loc and scale must both be variables, or neither"):
        layers.Normal(x, 2.0)
    with pytest.raises(TypeError, match="other"):
        layers.Normal(0.0, 1.0).kl_divergence(3)
    with pytest.raises(NotImplementedError, match="Categorical has no sample"):
        layers.Categorical(x).sample([2])
    with pytest.raises(NotImplementedError, match="MultivariateNormalDiag has no log_prob"):
        layers.MultivariateNormalDiag(x, x).log_prob(x)
    with pytest.raises(NotImplementedError, match="Uniform has no kl_divergence"):
        layers.Uniform(0.0, 1.0).kl_divergence(None)
    with pytest.raises(NotImplementedError, match="has no entropy"):
        layers.distributions.Distribution().entropy()
