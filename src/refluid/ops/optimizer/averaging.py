"""Running averages of parameters during training."""

from __future__ import annotations

import jax.numpy as jnp

from refluid.ops.core.registry import op

# How many updates are added to one sum before it is set aside: adding to a long sum loses precision.
_LONGEST_SUM = 16384


@op(
    "average_accumulates",
    inputs="param in_sum_1 in_sum_2 in_sum_3 in_num_accumulates in_old_num_accumulates in_num_updates",
    outputs="out_sum_1 out_sum_2 out_sum_3 out_num_accumulates out_old_num_accumulates out_num_updates",
    grad=None,
)
def average_accumulates(
    param,
    sum_1,
    sum_2,
    sum_3,
    num_accumulates,
    old_num_accumulates,
    num_updates,
    *,
    average_window=0.0,
    max_average_window=10000,
    min_average_window=10000,
):
    """Adds param to the running sums; a full window becomes sum_3, and the next one starts.

    A window is full after min_average_window updates or, if that is more, after average_window times all updates so
    far, limited to max_average_window.
    """
    num_updates = num_updates + 1
    num_accumulates = num_accumulates + 1
    sum_1 = sum_1 + param
    long = num_updates % _LONGEST_SUM == 0
    sum_1, sum_2 = jnp.where(long, 0, sum_1), jnp.where(long, sum_2 + sum_1, sum_2)
    # Fluid truncates the fraction before comparing.
    window = jnp.minimum(max_average_window, (num_updates * average_window).astype(num_updates.dtype))
    full = (num_accumulates >= min_average_window) & (num_accumulates >= window)
    return (
        jnp.where(full, 0, sum_1),
        jnp.where(full, 0, sum_2),
        jnp.where(full, sum_1 + sum_2, sum_3),
        jnp.where(full, 0, num_accumulates),
        jnp.where(full, num_accumulates, old_num_accumulates),
        num_updates,
    )
