"""Activations and other elementwise functions of one tensor.

At kinks the gradients match Fluid's, which is why many rules use `jnp.where` with a strict comparison.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.core.registry import OpDef, Slot, add, elementwise_ops, op
from refluid.ops.core.row_wise import not_along_rows
from refluid.ops.tensor.elementwise import absolute, clamp

unary = partial(op, inputs="X", outputs="Out", row_wise=True)


def _through_floats(function):
    """Extends ``function`` to integers: computes in float64 and truncates, like a C++ conversion."""

    def convert(x):
        if jnp.issubdtype(x.dtype, jnp.integer):
            return function(x.astype(jnp.float64)).astype(x.dtype)
        return function(x)

    convert.__doc__ = function.__doc__
    return convert


def _below_zero(x):
    """min(x, 0), so that exp does not overflow in the branch not taken; the gradient at 0 is 1."""
    return jnp.where(x > 0, 0, x)


elementwise_ops(
    {
        "abs": absolute,
        "acos": jnp.arccos,
        "asin": jnp.arcsin,
        "atan": jnp.arctan,
        "ceil": jnp.ceil,
        "cos": jnp.cos,
        "erf": jax.scipy.special.erf,
        "exp": _through_floats(jnp.exp),
        "floor": jnp.floor,
        "log": jnp.log,
        "log1p": jnp.log1p,
        "logsigmoid": jax.nn.log_sigmoid,
        "reciprocal": lambda x: 1 / x,
        "relu": jax.nn.relu,
        "round": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
        "rsqrt": lax.rsqrt,
        "sigmoid": jax.nn.sigmoid,
        "sign": jnp.sign,
        "sin": jnp.sin,
        "softplus": jax.nn.softplus,
        "softsign": jax.nn.soft_sign,
        "sqrt": jnp.sqrt,
        "square": jnp.square,
        "tanh": jnp.tanh,
        "tanh_shrink": lambda x: x - jnp.tanh(x),
    },
    row_wise=True,
    slices="rows",
)


@unary("brelu")
def brelu(x, *, t_min=0.0, t_max=24.0):
    """x clipped to [t_min, t_max]."""
    return clamp(x, t_min, t_max)


@unary("elu")
def elu(x, *, alpha=1.0):
    """x where x > 0, else alpha * (exp(x) - 1)."""
    return jnp.where(x > 0, x, alpha * jnp.expm1(_below_zero(x)))


@unary("gelu")
def gelu(x, *, approximate=False):
    """x * Phi(x), where Phi is the standard normal CDF, or its tanh approximation."""
    return jax.nn.gelu(x, approximate=approximate)


@unary("hard_shrink")
def hard_shrink(x, *, threshold=0.5):
    """x where |x| > threshold, else 0; NaN stays NaN."""
    return jnp.where(jnp.abs(x) <= threshold, 0, x)


@unary("hard_sigmoid")
def hard_sigmoid(x, *, slope=0.2, offset=0.5):
    """slope * x + offset, clipped to [0, 1]."""
    return clamp(slope * x + offset, 0, 1)


@unary("hard_swish")
def hard_swish(x, *, threshold=6.0, scale=6.0, offset=3.0):
    """x * clip(x + offset, 0, threshold) / scale."""
    return x * jnp.clip(x + offset, 0, threshold) / scale


@op("hard_swish_grad", inputs="X Out@GRAD", outputs="X@GRAD", grad=None, row_wise=True)
def hard_swish_grad(x, grad, *, threshold=6.0, scale=6.0, offset=3.0):
    """Fluid's gradient: above the threshold it is 1 even if threshold / scale is not."""
    inside = jnp.where(x + offset > 0, (2 * x + offset) / scale, 0)
    return grad * jnp.where(x + offset < threshold, inside, 1)


@unary("leaky_relu")
def leaky_relu(x, *, alpha=0.02):
    """max(x, alpha * x)."""
    return jnp.where(x > alpha * x, x, alpha * x)


@unary("maxout", lod=None, row_wise=not_along_rows("axis", 1))
def maxout(x, *, groups, axis=1):
    """The maximum of each ``groups`` adjacent channels; at a tie the first one gets the gradient."""
    axis %= x.ndim
    channels = x.shape[axis]
    if channels % groups:
        raise ValueError(f"{channels} channels can't be divided into groups of {groups}")
    x = x.reshape(*x.shape[:axis], channels // groups, groups, *x.shape[axis + 1 :])
    members = [lax.index_in_dim(x, i, axis + 1, keepdims=False) for i in range(groups)]
    return reduce(lambda best, member: jnp.where(member > best, member, best), members)


@unary("mish")
def mish(x, *, threshold=20.0):
    """x * tanh(softplus(x)), where softplus is x above the threshold and exp(x) below minus the threshold."""
    tail = jnp.where(x > threshold, x, jnp.exp(_below_zero(x)))
    return x * jnp.tanh(jnp.where(jnp.abs(x) > threshold, tail, jax.nn.softplus(x)))


@op("pow", inputs="X FactorTensor?", outputs="Out", differentiable="X", row_wise=True, slices="rows")
def pow(x, factor_tensor=None, *, factor=1.0):
    """x ** factor."""
    exponent = factor if factor_tensor is None else factor_tensor.reshape(())
    return _through_floats(lambda base: jnp.power(base, jnp.asarray(exponent, base.dtype)))(x)


@op("prelu", inputs="X Alpha", outputs="Out", row_wise=True)
def prelu(x, alpha, *, mode="all"):
    """x where x > 0, else alpha * x; one alpha for all, per channel, or per element of a row."""
    shapes = {"all": (), "channel": (1, *x.shape[1:2], *(1 for _ in x.shape[2:])), "element": (1, *x.shape[1:])}
    if mode not in shapes:
        raise ValueError(f"mode must be 'all', 'channel' or 'element', not {mode!r}")
    if mode == "element" and alpha.shape == x.shape:
        alpha = alpha[:1]  # Fluid 1.5 makes an alpha for each row, and uses the first
    return jnp.where(x > 0, x, alpha.reshape(shapes[mode]) * x)


@unary("relu6")
def relu6(x, *, threshold=6.0):
    """x clipped to [0, threshold]."""
    return clamp(x, 0, threshold)


@unary("selu")
def selu(x, *, scale=1.0507009873554805, alpha=1.6732632423543772):
    """scale * x where x > 0, else scale * alpha * (exp(x) - 1)."""
    return scale * jnp.where(x > 0, x, alpha * jnp.expm1(_below_zero(x)))


@unary("soft_relu")
def soft_relu(x, *, threshold=40.0):
    """log(1 + exp(x)), with x clipped to [-threshold, threshold]."""
    return jax.nn.softplus(jnp.clip(x, -threshold, threshold))


@op("soft_relu_grad", inputs="Out Out@GRAD", outputs="X@GRAD", grad=None, row_wise=True)
def soft_relu_grad(out, grad, *, threshold=40.0):
    """Fluid's gradient, which compares out, not x, with the threshold."""
    return jnp.where((out > -threshold) & (out < threshold), grad * -jnp.expm1(-out), 0)


@unary("stanh")
def stanh(x, *, scale_a=0.67, scale_b=1.7159):
    """scale_b * tanh(scale_a * x)."""
    return scale_b * jnp.tanh(scale_a * x)


@unary("swish")
def swish(x, *, beta=1.0):
    """x * sigmoid(beta * x)."""
    return x * jax.nn.sigmoid(beta * x)


@unary("thresholded_relu")
def thresholded_relu(x, *, threshold=1.0):
    """x where x > threshold, else 0; NaN stays NaN."""
    return jnp.where(x <= threshold, 0, x)


def softshrink(x: Any, **attrs: float) -> Any:
    """x moved towards 0 by ``lambda``; 0 where |x| <= ``lambda``, and NaN where x is."""
    distance = attrs.get("lambda", 0.5)
    return jnp.where(x <= distance, jnp.where(x < -distance, x + distance, 0), x - distance)


# The attribute name is a Python keyword, so the schema can't be derived from the signature.
add(OpDef("softshrink", softshrink, (Slot("X"),), (Slot("Out"),), attrs={"lambda": 0.5}, row_wise=True))
