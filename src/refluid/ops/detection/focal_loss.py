"""The focal loss of one-stage detectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient

from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in

_LOWEST = float(np.log(np.finfo(np.float32).tiny))


@op(
    "sigmoid_focal_loss",
    inputs="X Label FgNum",
    outputs="Out",
    differentiable="X",
    row_wise=sequences_only_in("X", "Label"),
)
def sigmoid_focal_loss(x, label, foreground, *, gamma=2.0, alpha=0.25):
    """-alpha (1 - p)^gamma log p for the label's class, -(1 - alpha) p^gamma log(1 - p) for others, over FgNum.

    Labels count from 1; 0 is the background, and rows with label -1 are ignored.
    """
    if x.ndim != 2 or label.shape != (x.shape[0], 1):
        raise ValueError(f"X {list(x.shape)} and Label {list(label.shape)} must be [N, classes] and [N, 1]")
    log_p, log_rest = jax.nn.log_sigmoid(x), jax.nn.log_sigmoid(-x)
    # Fluid's logarithm stops at that of the smallest float, its gradient does not.
    bounded = log_p + stop_gradient(jnp.maximum(log_p, _LOWEST) - log_p)
    # Powers as exponentials have finite gradients where p or 1 - p is 0.
    positive = -alpha * jnp.exp(gamma * log_rest) * bounded
    negative = -(1 - alpha) * jnp.exp(gamma * log_p) * log_rest
    is_class = label == jnp.arange(1, x.shape[1] + 1, dtype=label.dtype)
    loss = jnp.where(is_class, positive, jnp.where(label == -1, 0, negative))
    return loss / jnp.maximum(foreground.reshape(()), 1).astype(x.dtype)
