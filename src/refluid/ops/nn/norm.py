"""Normalisation within a sample (layer, group, instance), across channels (lrn) and by the largest singular value
(spectral_norm). batch_norm and data_norm have their own modules."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from refluid.ops.core.gradients import custom_vjp
from refluid.ops.core.registry import op


@custom_vjp(1)
def standardise(x: Any, epsilon: float) -> tuple[Any, Any, Any]:
    """x with mean 0 and variance 1 over its last axis, and the mean and variance, which carry no gradient."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + epsilon), mean[..., 0], variance[..., 0]


def _standardise_forward(x: Any, epsilon: float) -> tuple[Any, Any]:
    results = standardise(x, epsilon)
    return results, (x, *results[1:])


def _standardise_backward(epsilon: float, saved: Any, cotangents: Any) -> tuple[Any]:
    # Written out because autodiff makes extra passes over x for terms that cancel.
    x, mean, variance = saved
    incoming = cotangents[0]
    inverse_std = lax.rsqrt(variance + epsilon)[..., None]
    normal = (x - mean[..., None]) * inverse_std
    along = jnp.mean(incoming * normal, -1, keepdims=True)
    return ((incoming - jnp.mean(incoming, -1, keepdims=True) - normal * along) * inverse_std,)


standardise.defvjp(_standardise_forward, _standardise_backward)


def _scale_and_shift(x: Any, scale: Any, bias: Any) -> Any:
    if scale is not None:
        x = x * scale
    return x if bias is None else x + bias


@op("layer_norm", inputs="X Scale? Bias?", outputs="Y Mean Variance", row_wise=True)
def layer_norm(x, scale=None, bias=None, *, begin_norm_axis=1, epsilon=1e-5):
    """Standardises over all dims from ``begin_norm_axis`` on, then scales and shifts elementwise."""
    if not 0 < begin_norm_axis < x.ndim:
        raise ValueError(f"begin_norm_axis must be in [1, {x.ndim - 1}] for X of shape {list(x.shape)}")
    rows = x.reshape(math.prod(x.shape[:begin_norm_axis]), math.prod(x.shape[begin_norm_axis:]))
    for name, given in (("Scale", scale), ("Bias", bias)):
        if given is not None and given.size != rows.shape[1]:
            raise ValueError(f"{name} has {given.size} elements where each row of X has {rows.shape[1]}")
    normal, mean, variance = standardise(rows, epsilon)
    return _scale_and_shift(normal, scale, bias).reshape(x.shape), mean, variance


@op("group_norm", inputs="X Scale? Bias?", outputs="Y Mean Variance", row_wise=True)
def group_norm(x, scale=None, bias=None, *, groups=1, epsilon=1e-5, data_layout="NCHW"):
    """Standardises each group of channels of each sample, then scales and shifts per channel."""
    if data_layout == "NHWC":
        x = jnp.moveaxis(x, -1, 1)
    samples, channels, *place = x.shape
    if groups < 1 or channels % groups:
        raise ValueError(f"groups={groups} does not divide the {channels} channels of X")
    grouped = x.reshape(samples, groups, (channels // groups) * math.prod(place))
    normal, mean, variance = standardise(grouped, epsilon)
    if scale is None:
        # Fluid's gradient then treats the mean as a constant: add 0 here, and with it the gradient that was subtracted.
        center = jnp.mean(grouped, -1, keepdims=True)
        normal += (center - lax.stop_gradient(center)) * lax.stop_gradient(lax.rsqrt(variance + epsilon))[..., None]
    y = _scale_and_shift(normal.reshape(x.shape), _of_channels(scale, x), _of_channels(bias, x))
    return jnp.moveaxis(y, 1, -1) if data_layout == "NHWC" else y, mean, variance


@op("instance_norm", inputs="X Scale? Bias?", outputs="Y SavedMean SavedVariance", row_wise=True)
def instance_norm(x, scale=None, bias=None, *, epsilon=1e-5):
    """Standardises each channel of each sample; SavedVariance is 1 / sqrt(variance + epsilon)."""
    samples, channels, *place = x.shape
    normal, mean, variance = standardise(x.reshape(samples, channels, math.prod(place)), epsilon)
    y = _scale_and_shift(normal.reshape(x.shape), _of_channels(scale, x), _of_channels(bias, x))
    return y, mean.reshape(-1), lax.rsqrt(variance.reshape(-1) + epsilon)


@op("affine_channel", inputs="X Scale Bias", outputs="Out", row_wise=True)
def affine_channel(x, scale, bias, *, data_layout="AnyLayout"):
    """x * scale + bias per channel; channels come last unless the layout is NCHW."""
    axis = 1 if data_layout == "NCHW" else x.ndim - 1
    if (scale.size, bias.size) != (x.shape[axis],) * 2:
        raise ValueError(f"Scale and Bias have {scale.size} and {bias.size} elements for {x.shape[axis]} channels of X")
    return x * _of_channels(scale, x, axis) + _of_channels(bias, x, axis)


def _of_channels(values: Any, x: Any, axis: int = 1) -> Any:
    """``values`` reshaped to broadcast along the channels of x."""
    return None if values is None else values.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


@op("lrn", inputs="X", outputs="Out MidOut", row_wise=True)
def lrn(x, *, n=5, k=2.0, alpha=1e-4, beta=0.75, data_format="NCHW"):
    """x / (k + alpha * sum of squares over n neighbouring channels) ** beta."""
    if n % 2 == 0:
        raise ValueError(f"n must be odd, not {n}: as many channels before as after")
    axis = x.ndim - 1 if data_format == "NHWC" else 1
    before, channels = (n - 1) // 2, x.shape[axis]
    padding = [(before, n - 1 - before) if i == axis else (0, 0) for i in range(x.ndim)]
    squares = jnp.pad(jnp.square(x), padding)
    total = sum(lax.slice_in_dim(squares, i, i + channels, axis=axis) for i in range(n))
    middle = k + alpha * total
    return x * middle**-beta, middle


@op("spectral_norm", inputs="Weight U V", outputs="Out", differentiable="Weight")
def spectral_norm(weight, u, v, *, dim=0, power_iters=1, eps=1e-12):
    """weight divided by its largest singular value, estimated by power iteration from u and v."""
    matrix = _as_matrix(weight, dim)
    u, v = _power_iteration(matrix, u, v, power_iters, eps)
    return weight / (u @ matrix @ v)


@op("spectral_norm_grad", inputs="Weight U V Out@GRAD", outputs="Weight@GRAD", lod=None)
def spectral_norm_grad(weight, u, v, out_grad, *, dim=0, power_iters=1, eps=1e-12):
    """Fluid's gradient, dout / sigma * (1 - u v' sum(weight) / sigma).

    It is not the derivative, which subtracts sum(dout * weight) u v' instead; Fluid's models were trained with it.
    """
    matrix, incoming = _as_matrix(weight, dim), _as_matrix(out_grad, dim)
    u, v = _power_iteration(matrix, u, v, power_iters, eps)
    sigma = u @ matrix @ v
    gradient = incoming / sigma * (1 - jnp.outer(u, v) * matrix.sum() / sigma)
    others = [size for axis, size in enumerate(weight.shape) if axis != dim]
    return jnp.moveaxis(gradient.reshape(weight.shape[dim], *others), 0, dim)


def _as_matrix(weight: Any, dim: int) -> Any:
    return jnp.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)


def _power_iteration(matrix: Any, u: Any, v: Any, iterations: int, eps: float) -> tuple[Any, Any]:
    u, v = u.reshape(-1), v.reshape(-1)
    for _ in range(iterations):
        v = _unit(matrix.T @ u, eps)
        u = _unit(matrix @ v, eps)
    return u, v


def _unit(vector: Any, eps: float) -> Any:
    return vector / (jnp.linalg.norm(vector) + eps)
