"""batch_norm and its gradient.

Arrays are viewed as (outer, channels, inner); inner is 1 if channels come last, as in images on a CPU, whose sums are a
kernel's. Other sums reduce inner first, then outer, which XLA vectorises on CPU. The gradient is written out because
autodiff makes five passes where two are enough. sync_batch_norm adds the sums of all replicas.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from refluid import kernels
from refluid.ops.core import replicas
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain

_KERNEL_FROM = 1 << 14  # elements


def _batch_norm(
    total,
    x,
    scale,
    bias,
    mean,
    variance,
    momentum_tensor=None,
    *,
    epsilon=1e-5,
    momentum=0.9,
    is_test=False,
    use_global_stats=False,
    trainable_statistics=False,
    data_layout="NCHW",
):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias per channel; SavedVariance is 1 / sqrt(...)."""
    view = _by_channel(plain(x), data_layout)
    if _uses_moving_averages(is_test, use_global_stats, trainable_statistics):
        y = _normalise(view, scale, bias, mean, lax.rsqrt(variance + epsilon))
        unused = jnp.zeros_like(mean)
        return _like(x, y, data_layout), mean, variance, unused, unused
    real, count = _counted(x, view)
    if _has_no_variance(count, total):
        unused = jnp.zeros_like(mean)
        return x, mean, variance, unused, unused
    count = total(count)
    batch_mean = total(_sum_by_channel(view, real)) / count
    batch_variance = total(_sum_of_squares(view, batch_mean, real)) / count
    inverse_std = lax.rsqrt(batch_variance + epsilon)
    if momentum_tensor is not None:
        momentum = momentum_tensor.reshape(()).astype(mean.dtype)
    return (
        _like(x, _normalise(view, scale, bias, batch_mean, inverse_std), data_layout),
        mean * momentum + batch_mean * (1 - momentum),
        variance * momentum + batch_variance * (1 - momentum),
        batch_mean,
        inverse_std,
    )


def _batch_norm_grad(
    total,
    x,
    scale,
    bias,
    mean,
    variance,
    saved_mean,
    saved_inverse_std,
    y_grad,
    *,
    epsilon=1e-5,
    is_test=False,
    use_global_stats=False,
    trainable_statistics=False,
    data_layout="NCHW",
):
    """Gradients of x, scale and bias from the saved statistics, or from the moving averages if those were used."""
    constant = _uses_moving_averages(is_test, use_global_stats, trainable_statistics)
    if not constant and _has_no_variance(_counted(x, _by_channel(plain(x), data_layout))[1], total):
        return y_grad, jnp.zeros_like(scale), jnp.zeros_like(scale)
    center, inverse_std = (mean, lax.rsqrt(variance + epsilon)) if constant else (saved_mean, saved_inverse_std)
    view, incoming = _by_channel(plain(x), data_layout), _by_channel(plain(y_grad), data_layout)
    centered = view - _column(center)
    bias_grad, scale_grad = _sums_of_products(view, center, incoming)
    scale_grad *= inverse_std
    slope = scale * inverse_std
    x_grad = incoming * _column(slope)
    if not constant:
        real, count = _counted(x, view)
        count = total(count)
        x_grad -= _column(slope * total(bias_grad) / count)
        x_grad -= centered * _column(slope * inverse_std * total(scale_grad) / count)
        x_grad = x_grad if real is None else jnp.where(real, x_grad, 0)
    return _like(x, x_grad, data_layout), scale_grad, bias_grad


def _counted(x: Any, view: Any) -> tuple[Any, Any]:
    """The mask of real rows of the view (None: all are real) and the number of elements they hold per channel."""
    everything = view.size // view.shape[1]
    if not isinstance(x, Ragged):
        return None, everything
    each = everything // x.shape[0]
    real = jnp.repeat(x.real(), view.shape[0] // x.shape[0], total_repeat_length=view.shape[0])
    return real[:, None, None], (x.rows * each).astype(view.dtype)


def _has_no_variance(count: Any, total: Any) -> bool:
    """Whether a channel has a single value. Fluid then passes x on as it is, and learns nothing from it."""
    return isinstance(count, int) and count == 1 and (total is _own or replicas.count() == 1)


def _like(x: Any, values: Any, data_layout: str) -> Any:
    """``values`` of a view with the shape and dtype of x; ragged if x is."""
    if _is_image(x, data_layout):
        values = jnp.moveaxis(values.reshape(x.shape[0], *x.shape[2:], x.shape[1]), -1, 1)
    values = values.reshape(x.shape).astype(x.dtype)
    return x.with_data(values) if isinstance(x, Ragged) else values


def _uses_moving_averages(is_test: bool, use_global_stats: bool, trainable_statistics: bool) -> bool:
    return use_global_stats or (is_test and not trainable_statistics)


def _by_channel(x: Any, data_layout: str) -> Any:
    """x as (outer, channels, inner), in at least float32."""
    if data_layout not in ("NCHW", "NHWC", "AnyLayout"):
        raise ValueError(f"data_layout must be NCHW or NHWC, not {data_layout}")
    if x.ndim < 2:
        raise ValueError(f"X needs a batch and a channel dim, but has shape {list(x.shape)}")
    axis = 1 if data_layout == "NCHW" else x.ndim - 1
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    if _is_image(x, data_layout):
        wide, axis = jnp.moveaxis(wide, 1, -1), x.ndim - 1
    return wide.reshape(math.prod(wide.shape[:axis]), wide.shape[axis], math.prod(wide.shape[axis + 1 :]))


def _is_image(x: Any, data_layout: str) -> bool:
    """Whether x is better viewed channels-last: convolutions on a CPU leave images that way (`lowering/layout.py`)."""
    return kernels.on_cpu() and data_layout == "NCHW" and x.ndim in (4, 5)


def _sum_by_channel(view: Any, real: Any = None) -> Any:
    kernel = _kernel(view, real)
    if kernel is not None:
        return kernel.sums(view[:, :, 0])
    view = view if real is None else jnp.where(real, view, 0)
    return view[:, :, 0].sum(0) if view.shape[2] == 1 else view.sum(2).sum(0)


def _sum_of_squares(view: Any, center: Any, real: Any) -> Any:
    kernel = _kernel(view, real)
    if kernel is not None:
        return kernel.squares(view[:, :, 0], center)
    return _sum_by_channel(jnp.square(view - _column(center)), real)


def _sums_of_products(view: Any, center: Any, incoming: Any) -> tuple[Any, Any]:
    """The sums of incoming, and of incoming * (view - center)."""
    kernel = _kernel(view)
    if kernel is not None:
        return kernel.products(view[:, :, 0], center, incoming[:, :, 0])
    return _sum_by_channel(incoming), _sum_by_channel(incoming * (view - _column(center)))


def _kernel(view: Any, real: Any = None) -> Any:
    """The kernel of these sums, or None; what is small, XLA adds as fast."""
    suits = real is None and view.dtype == jnp.float32 and view.shape[2] == 1 and view.size >= _KERNEL_FROM
    return kernels.find("channel_sums") if suits else None


def _column(values: Any) -> Any:
    return values[:, None]


def _normalise(view: Any, scale: Any, bias: Any, mean: Any, inverse_std: Any) -> Any:
    return (view - _column(mean)) * _column(inverse_std * scale) + _column(bias)


def _own(value: Any) -> Any:
    return value


def _of_all_replicas(value: Any) -> Any:
    return value if replicas.count() == 1 else lax.psum(value, replicas.AXIS)


def _rule(function: Any, total: Any) -> Any:
    """The rule that computes ``total`` of each sum and count."""
    rule = partial(function, total)
    rule.__doc__ = function.__doc__
    return rule


for _type, _total in (("batch_norm", _own), ("sync_batch_norm", _of_all_replicas)):
    op(
        _type,
        inputs="X Scale Bias Mean Variance MomentumTensor?",
        outputs="Y MeanOut VarianceOut SavedMean SavedVariance",
        lod="aware",
    )(_rule(_batch_norm, _total))
    op(
        _type + "_grad",
        inputs="X Scale Bias? Mean? Variance? SavedMean SavedVariance Y@GRAD",
        outputs="X@GRAD Scale@GRAD Bias@GRAD",
        lod="aware",
    )(_rule(_batch_norm_grad, _total))


@op(
    "inplace_abn",
    inputs="X Scale Bias Mean Variance MomentumTensor?",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance ReserveSpace?",
    lod="aware",
)
def inplace_abn(
    x,
    scale,
    bias,
    mean,
    variance,
    momentum_tensor=None,
    *,
    activation="",
    alpha=0.1,
    use_sync_bn=False,
    epsilon=1e-5,
    momentum=0.9,
    is_test=False,
    use_global_stats=False,
    trainable_statistics=False,
    data_layout="NCHW",
):
    """batch_norm and an activation that can be undone: Y overwrites X, and the gradient computes X from it."""
    y, *statistics = _batch_norm(
        _of_all_replicas if use_sync_bn else _own,
        *(x, scale, bias, mean, variance, momentum_tensor),
        epsilon=epsilon,
        momentum=momentum,
        is_test=is_test,
        use_global_stats=use_global_stats,
        trainable_statistics=trainable_statistics,
        data_layout=data_layout,
    )
    y = _activated(plain(y), activation, alpha)
    return x.with_data(y) if isinstance(x, Ragged) else y, *statistics, None


@op(
    "inplace_abn_grad",
    inputs="Y Scale Bias Mean? Variance? SavedMean SavedVariance Y@GRAD",
    outputs="X@GRAD Scale@GRAD Bias@GRAD",
    lod="aware",
)
def inplace_abn_grad(
    y,
    scale,
    bias,
    mean,
    variance,
    saved_mean,
    saved_inverse_std,
    y_grad,
    *,
    activation="",
    alpha=0.1,
    use_sync_bn=False,
    epsilon=1e-5,
    is_test=False,
    use_global_stats=False,
    trainable_statistics=False,
    data_layout="NCHW",
):
    """The gradient of batch_norm at the input that gave this output."""
    constant = _uses_moving_averages(is_test, use_global_stats, trainable_statistics)
    center, inverse_std = (mean, lax.rsqrt(variance + epsilon)) if constant else (saved_mean, saved_inverse_std)
    before, slope = _deactivated(_by_channel(plain(y), data_layout), activation, alpha)
    x = (before - _column(bias)) / _column(scale * inverse_std) + _column(center)
    return _batch_norm_grad(
        _of_all_replicas if use_sync_bn else _own,
        *(_like(y, x, data_layout), scale, bias, mean, variance, saved_mean, saved_inverse_std),
        _like(y, _by_channel(plain(y_grad), data_layout) * slope, data_layout),
        epsilon=epsilon,
        is_test=is_test,
        use_global_stats=use_global_stats,
        trainable_statistics=trainable_statistics,
        data_layout=data_layout,
    )


def _activated(x: Any, activation: str, alpha: float) -> Any:
    if activation in ("", "identity"):
        return x
    if activation == "leaky_relu":
        return jnp.where(x > 0, x, alpha * x)
    if activation == "elu":
        return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))
    raise ValueError(f"activation must be identity, leaky_relu or elu, which can be undone, not {activation}")


def _deactivated(y: Any, activation: str, alpha: float) -> tuple[Any, Any]:
    """What was activated to y, and the slope of the activation there."""
    if activation == "leaky_relu":
        return jnp.where(y > 0, y, y / alpha), jnp.where(y > 0, 1, alpha)
    if activation == "elu":
        return jnp.where(y > 0, y, jnp.log1p(jnp.minimum(y, 0) / alpha)), jnp.where(y > 0, 1, y + alpha)
    return y, jnp.ones_like(y)
