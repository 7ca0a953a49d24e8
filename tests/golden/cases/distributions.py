"""Probability distributions of fluid.layers."""

import numpy as np

from golden.case import f32, layer_case

CASES = []


def named(fluid, *values):
    """The values under names that do not depend on the number of layers before."""
    return [fluid.layers.scale(value, 1.0, name="result_%d" % i) for i, value in enumerate(values)]


OTHER_OPS = {"ops": False}  # real Fluid broadcasts by adding zeros, and takes a determinant as a product of all entries


@layer_case(CASES, grads=False, x=f32(3, low=0.0, high=3.0), **OTHER_OPS)
def uniform_of_numbers(fluid, x):
    uniform = fluid.layers.Uniform(0.0, 2.0)
    return named(fluid, uniform.entropy(), uniform.log_prob(x))


@layer_case(CASES, grads=False, x=f32(2), **OTHER_OPS)
def uniform_of_lists(fluid, x):
    uniform = fluid.layers.distributions.Uniform([0.0, -0.5], [2.0, 0.9])
    return named(fluid, uniform.entropy(), uniform.log_prob(x))


@layer_case(CASES, x=f32(3, 2), **OTHER_OPS)
def normal_of_numbers(fluid, x):
    normal = fluid.layers.Normal(0.5, 2.0)
    other = fluid.layers.Normal(0.0, 3.0)
    return named(fluid, normal.entropy(), normal.log_prob(x), normal.kl_divergence(other))


@layer_case(CASES, x=f32(3, 2), loc=f32(3, 2, salt=1), scale=f32(3, 2, low=0.5), **OTHER_OPS)
def normal_of_variables(fluid, x, loc, scale):
    normal = fluid.layers.Normal(loc, scale)
    other = fluid.layers.Normal(x, scale)
    return named(fluid, normal.entropy(), normal.log_prob(x), normal.kl_divergence(other))


@layer_case(CASES, grads=False, x=f32(2, 2), **OTHER_OPS)
def normal_of_arrays(fluid, x):
    normal = fluid.layers.Normal(np.float32([0, 1]), np.float32([2, 0.5]))
    return named(
        fluid, normal.entropy(), normal.log_prob(x), normal.kl_divergence(fluid.layers.Normal([0.5, 1.0], [3.0, 2.0]))
    )


@layer_case(CASES, x=f32(2, 3), y=f32(2, 3, salt=1), **OTHER_OPS)
def categorical(fluid, x, y):
    mine, other = fluid.layers.Categorical(x), fluid.layers.Categorical(y)
    return named(fluid, mine.entropy(), mine.kl_divergence(other))


@layer_case(CASES, grads=False, x=f32(2), y=f32(2, salt=1), **OTHER_OPS)
def multivariate_normal(fluid, x, y):
    scales = [fluid.layers.assign(np.diag(each).astype("float32")) for each in ([0.4, 0.5], [0.3, 0.4])]
    mine, other = (fluid.layers.MultivariateNormalDiag(loc, scale) for loc, scale in zip((x, y), scales))
    return named(fluid, mine.entropy(), mine.kl_divergence(other))


@layer_case(CASES, grads=False, check="shapes", **OTHER_OPS)
def samples(fluid):
    layers = fluid.layers
    return named(
        fluid,
        layers.Normal(0.0, 1.0).sample([2, 3]),
        layers.Normal([0.0, 1.0], [1.0, 2.0]).sample([3], seed=4),
        layers.Uniform(0.0, 1.0).sample([2, 3]),
        layers.Uniform([0.0, 1.0], [1.0, 2.0]).sample([3]),
    )
