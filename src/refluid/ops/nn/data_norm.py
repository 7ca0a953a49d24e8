"""data_norm: normalisation by running sums, which its "gradients" update.

The gradients of BatchSize, BatchSum and BatchSquareSum are not derivatives: they are what this batch adds to the sums.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from refluid.ops.core.registry import op

_ABSENT = 1e-7  # a slot is absent from a sample if its first number, the show count, is smaller


@op("data_norm", inputs="X BatchSize BatchSum BatchSquareSum scale_w? bias?", outputs="Y Means Scales")
def data_norm(x, size, total, squares, scale_w=None, bias=None, *, slot_dim=-1, enable_scale_and_shift=False):
    """(x - total / size) * sqrt(size / squares); slots absent from a sample give zeros."""
    means, scales = total / size, jnp.sqrt(size / squares)
    y = (x - means) * scales
    if enable_scale_and_shift:
        y = y * scale_w + bias
    if slot_dim > 0:
        y = jnp.where(_present(x, slot_dim), y, jnp.zeros((), x.dtype))
    return y, means, scales


@op(
    "data_norm_grad",
    inputs="X BatchSize BatchSum BatchSquareSum scale_w? bias? Means Scales Y@GRAD",
    outputs="X@GRAD BatchSize@GRAD BatchSum@GRAD BatchSquareSum@GRAD scale_w@GRAD bias@GRAD",
    lod=None,
)
def data_norm_grad(
    x,
    size,
    total,
    squares,
    scale_w,
    bias,
    means,
    scales,
    y_grad,
    *,
    epsilon=1e-5,
    slot_dim=-1,
    enable_scale_and_shift=False,
):
    """The gradient of x, and what the batch adds to the sums: counts, values, squared distances from the mean."""
    centered = x - means
    x_grad = y_grad * scales
    scale_w_grad = bias_grad = None
    if enable_scale_and_shift:
        x_grad = x_grad * scale_w
        scale_w_grad, bias_grad = (y_grad * centered * scales).sum(0), y_grad.sum(0)
    if slot_dim > 0:
        present = _present(x, slot_dim).astype(x.dtype)
        count = present.sum(0)
        per_sample = 1 / jnp.maximum(count, 1)  # Fluid averages over the samples that have the slot
        size_grad = (count > 0).astype(x.dtype)
        total_grad = (x * present).sum(0) * per_sample
        squares_grad = (jnp.square(centered) * present).sum(0) * per_sample
    else:
        size_grad = count = jnp.full_like(size, x.shape[0])
        total_grad, squares_grad = x.sum(0), jnp.square(centered).sum(0)
    return x_grad, size_grad, total_grad, squares_grad + count * epsilon, scale_w_grad, bias_grad


def _present(x: Any, slot_dim: int) -> Any:
    """Whether each element of x lies in a slot that its sample has."""
    samples, width = x.shape
    if width % slot_dim:
        raise ValueError(f"slot_dim={slot_dim} does not divide the {width} columns of X")
    shows = jnp.abs(x.reshape(samples, width // slot_dim, slot_dim)[:, :, :1]) >= _ABSENT
    return jnp.broadcast_to(shows, (samples, width // slot_dim, slot_dim)).reshape(samples, width)
