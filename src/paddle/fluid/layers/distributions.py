"""Probability distributions, whose samples, entropies, densities and divergences are layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.fluid import layers
from paddle.fluid.data_feeder import check_type
from refluid.ir import Variable, as_dtype

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]

Parameter = float | list[float] | np.ndarray | Variable


class Distribution:
    """The base of distributions; each defines what can be computed of it."""

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Draws samples."""
        raise NotImplementedError(f"{type(self).__name__} has no sample")

    def entropy(self) -> Variable:
        """Returns the entropy."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def kl_divergence(self, other: Any) -> Variable:
        """Returns the Kullback-Leibler divergence from another distribution of the same kind."""
        raise NotImplementedError(f"{type(self).__name__} has no kl_divergence")

    def log_prob(self, value: Variable) -> Variable:
        """Returns the logarithm of the density at ``value``."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")


class _OfTwo(Distribution):
    """A distribution of numbers with two parameters, which are broadcast to one shape."""

    def __init__(self, **parameters: Parameter):
        kind = type(self).__name__
        for name, value in parameters.items():
            check_type(value, name, (float, np.ndarray, Variable, list), kind)
        given = list(parameters.values())
        # As in Fluid, samples of a distribution with plain numbers do not get a dim for its parameters.
        self._of_numbers = all(isinstance(value, float) for value in given)
        variables = [isinstance(value, Variable) for value in given]
        if any(variables) and not all(variables):
            raise ValueError(f"{kind}: {' and '.join(parameters)} must both be variables, or neither")
        self._parameters: list[Variable] = given if all(variables) else _assigned(given)  # pyright: ignore

    def _drawn(self, shape: Sequence[int], draw: Any, draw_like: Any) -> Variable:
        """Random numbers of ``shape``, followed by the shape of the parameters."""
        both = layers.elementwise_add(*self._parameters)
        batch, shape = list(both.shape), list(shape)
        if batch[:1] != [-1]:
            return draw(shape + batch)
        drawn = draw_like(both, batch + shape)
        count = len(batch)
        return layers.transpose(drawn, [*range(count, count + len(shape)), *range(count)]) if shape else drawn

    def _placed(self, drawn: Variable, start: Variable, width: Variable, shape: Sequence[int]) -> Variable:
        samples = layers.elementwise_add(layers.elementwise_mul(drawn, width), start)
        return layers.reshape(samples, list(shape)) if self._of_numbers else samples


def _assigned(given: list[Any]) -> list[Variable]:
    arrays = [np.asarray([value] if isinstance(value, float) else value) for value in given]
    broadcast = np.broadcast_arrays(*(array.astype("float32") for array in arrays))
    return [layers.assign(np.ascontiguousarray(array)) for array in broadcast]


class Uniform(_OfTwo):
    """The uniform distribution between ``low`` and ``high``, both exclusive in `log_prob`.

    Args:
      low, high: numbers, lists, arrays or variables, which are broadcast.
    """

    def __init__(self, low: Parameter, high: Parameter):
        super().__init__(low=low, high=high)
        self.low, self.high = self._parameters

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Draws samples of ``shape``, followed by the shape of the parameters unless these are plain numbers."""
        dtype = self.low.dtype
        drawn = self._drawn(
            shape,
            lambda dims: layers.uniform_random(dims, dtype, min=0.0, max=1.0, seed=seed),
            lambda like, dims: layers.uniform_random_batch_size_like(like, dims, dtype, min=0.0, max=1.0, seed=seed),
        )
        return self._placed(drawn, self.low, self.high - self.low, shape)

    def log_prob(self, value: Variable) -> Variable:
        """Returns -log(high - low) between low and high, else -inf."""
        spread = value + layers.zeros_like(self.low)  # of the shape that all three are broadcast to
        none = layers.zeros_like(spread)
        inside = layers.logical_and(
            layers.less_than(none + self.low, spread), layers.less_than(spread, none + self.high)
        )
        return layers.log(layers.cast(inside, value.dtype)) - layers.log(self.high - self.low)

    def entropy(self) -> Variable:
        """Returns log(high - low)."""
        return layers.log(self.high - self.low)


class Normal(_OfTwo):
    """The normal distribution.

    Args:
      loc, scale: mean and standard deviation: numbers, lists, arrays or variables, which are broadcast.
    """

    def __init__(self, loc: Parameter, scale: Parameter):
        super().__init__(loc=loc, scale=scale)
        self.loc, self.scale = self._parameters

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Draws samples of ``shape``, followed by the shape of the parameters unless these are plain numbers."""
        dtype = self.loc.dtype
        drawn = self._drawn(
            shape,
            lambda dims: layers.gaussian_random(dims, mean=0.0, std=1.0, seed=seed, dtype=dtype),
            lambda like, dims: layers.gaussian_random_batch_size_like(like, dims, seed=seed, dtype=dtype),
        )
        return self._placed(drawn, self.loc, self.scale, shape)

    def entropy(self) -> Variable:
        """Returns log(scale) + 0.5 * log(2 pi e)."""
        return layers.log(self.scale + layers.zeros_like(self.loc)) + 0.5 * (1 + math.log(2 * math.pi))

    def log_prob(self, value: Variable) -> Variable:
        """Returns the logarithm of the density at ``value``."""
        distance = (value - self.loc) / self.scale
        return -0.5 * distance * distance - layers.log(self.scale) - 0.5 * math.log(2 * math.pi)

    def kl_divergence(self, other: Normal) -> Variable:
        """Returns the Kullback-Leibler divergence from another normal distribution."""
        check_type(other, "other", Normal, "kl_divergence")
        ratio = layers.square(self.scale / other.scale)
        distance = layers.square((self.loc - other.loc) / other.scale)
        return 0.5 * (ratio + distance - 1.0 - layers.log(ratio))


class Categorical(Distribution):
    """The distribution over classes with probabilities softmax(logits), along the last dim."""

    def __init__(self, logits: list[Any] | np.ndarray | Variable):
        check_type(logits, "logits", (np.ndarray, Variable, list), "Categorical")
        self.logits: Any = logits if isinstance(logits, Variable) else layers.assign(np.asarray(logits, "float32"))

    def _log_probabilities(self) -> Variable:
        shifted = self.logits - layers.reduce_max(self.logits, dim=-1, keep_dim=True)
        return shifted - layers.log(layers.reduce_sum(layers.exp(shifted), dim=-1, keep_dim=True))

    def entropy(self) -> Variable:
        """Returns the entropy, with a last dim of 1."""
        logarithms = self._log_probabilities()
        return -1.0 * layers.reduce_sum(layers.exp(logarithms) * logarithms, dim=-1, keep_dim=True)

    def kl_divergence(self, other: Categorical) -> Variable:
        """Returns the Kullback-Leibler divergence from another categorical distribution, with a last dim of 1."""
        check_type(other, "other", Categorical, "kl_divergence")
        mine = self._log_probabilities()
        difference = mine - other._log_probabilities()
        return layers.reduce_sum(layers.exp(mine) * difference, dim=-1, keep_dim=True)


class MultivariateNormalDiag(Distribution):
    """The normal distribution of vectors with independent components.

    Args:
      loc: the mean, of shape [k].
      scale: the covariances, a diagonal matrix of shape [k, k].
    """

    def __init__(self, loc: list[float] | np.ndarray | Variable, scale: list[Any] | np.ndarray | Variable):
        check_type(loc, "loc", (np.ndarray, Variable, list), "MultivariateNormalDiag")
        check_type(scale, "scale", (np.ndarray, Variable, list), "MultivariateNormalDiag")
        self.loc, self.scale = (
            value if isinstance(value, Variable) else layers.assign(np.asarray(value, "float32"))
            for value in (loc, scale)
        )

    def _variances(self) -> Variable:
        size = self.scale.shape[0]
        return layers.reduce_sum(self.scale * layers.assign(np.eye(size, dtype=_numpy(self.scale))), dim=-1)

    def _log_determinant(self) -> Variable:
        return layers.reduce_sum(layers.log(self._variances()))

    def entropy(self) -> Variable:
        """Returns 0.5 * (k * (1 + log(2 pi)) + log det scale)."""
        return 0.5 * (self.scale.shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_determinant())

    def kl_divergence(self, other: MultivariateNormalDiag) -> Variable:
        """Returns the Kullback-Leibler divergence from another such distribution."""
        check_type(other, "other", MultivariateNormalDiag, "kl_divergence")
        mine, theirs = self._variances(), other._variances()
        distance = layers.square(other.loc - self.loc)  # differs: diagonal-divergence
        terms = layers.reduce_sum((mine + distance) / theirs) - float(self.scale.shape[0])
        return 0.5 * (terms + other._log_determinant() - self._log_determinant())


def _numpy(variable: Variable) -> str:
    return "float64" if variable.dtype == as_dtype("float64") else "float32"
