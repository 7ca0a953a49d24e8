"""The three products of convolutions, each in the form chosen for its shapes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from refluid import kernels
from refluid.ops.core.gradients import custom_vjp
from refluid.ops.nn.conv import forms, offsets
from refluid.ops.nn.conv.choice import choose
from refluid.ops.nn.conv.window import Window


@custom_vjp(2)
def correlate(x, w, window: Window):
    """out[n, p, o] = sum over kernel elements k and channels c of x[n, p * stride + k * dilation - pad, c] w[k, c, o].

    p, k, stride, dilation and pad have an entry per spatial dim.
    """
    forms = choose(window, x.shape[0], x.shape[1:-1], x.shape[-1], w.shape[-1], x.dtype)
    return CORRELATE[forms.correlate](x, w, window)


@custom_vjp(2, 3)
def spread(g, w, window: Window, dims: tuple[int, ...]):
    """The transpose of `correlate` in x, for x with spatial dims ``dims``."""
    forms = choose(window, g.shape[0], dims, w.shape[-2] * window.groups, w.shape[-1], g.dtype)
    return SPREAD[forms.spread](g, w, window, dims)


@custom_vjp(2)
def weight_gradient(x, g, window: Window):
    """The transpose of `correlate` in w."""
    forms = choose(window, x.shape[0], x.shape[1:-1], x.shape[-1], g.shape[-1], x.dtype)
    return WEIGHT_GRADIENT[forms.weight_gradient](x, g, window)


def _correlate_backward(window, saved, g):
    x, w = saved
    return spread(g, w, window, x.shape[1:-1]), weight_gradient(x, g, window)


def _spread_backward(window, dims, saved, x):
    g, w = saved
    return correlate(x, w, window), weight_gradient(x, g, window)


def _weight_backward(window, saved, w):
    x, g = saved
    return spread(g, w, window, x.shape[1:-1]), correlate(x, w, window)


correlate.defvjp(lambda x, w, window: (correlate(x, w, window), (x, w)), _correlate_backward)
spread.defvjp(lambda g, w, window, dims: (spread(g, w, window, dims), (g, w)), _spread_backward)
weight_gradient.defvjp(lambda x, g, window: (weight_gradient(x, g, window), (x, g)), _weight_backward)


# split: one group at a time


def _by_group(product, a, b, window, *dims):
    one, groups = replace(window, groups=1), window.groups
    pairs = zip(jnp.split(a, groups, axis=-1), jnp.split(b, groups, axis=-1), strict=True)
    return jnp.concatenate([product(*pair, one, *dims) for pair in pairs], axis=-1)


# kernel: what `refluid.kernels` computes


def _by_kernel(product, *arguments):
    return getattr(kernels.find("depthwise"), product)(*arguments)


def _jitted(*static, **products):
    """Jits the forms, so that op-by-op execution neither retraces the loops nor dispatches each step of a form."""
    return {name: jax.jit(product, static_argnums=static) for name, product in products.items()}


CORRELATE = _jitted(
    2,
    lax=forms.correlate_lax,
    dot=forms.correlate_dot,
    offsets=offsets.correlate_offsets,
    columns=forms.correlate_columns,
    shifts=forms.correlate_shifts,
    split=partial(_by_group, correlate),
    kernel=partial(_by_kernel, "correlate"),
)
SPREAD = _jitted(
    2,
    3,
    lax=forms.spread_lax,
    dot=forms.spread_dot,
    offsets=offsets.spread_offsets,
    shifts=forms.spread_shifts,
    split=partial(_by_group, spread),
    kernel=partial(_by_kernel, "spread"),
)
WEIGHT_GRADIENT = _jitted(
    2,
    lax=forms.weight_gradient_lax,
    dot=forms.weight_gradient_dot,
    offsets=offsets.weight_gradient_offsets,
    columns=forms.weight_gradient_columns,
    shifts=forms.weight_gradient_shifts,
    split=partial(_by_group, weight_gradient),
    kernel=partial(_by_kernel, "weight_gradient"),
    batch=offsets.weight_gradient_batch,
)
