"""Loss scaling for mixed precision: gradients of a scaled loss, and the scale that follows what they allow.

Real Fluid composes these of many operators, and has ops of this name from 2.0 on.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import SelectedRows


def _like_gradients(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {"Out": inputs["X"], "FoundInfinite": [ShapeDtype((1,), jnp.dtype(bool))]}


@op(
    "check_finite_and_unscale",
    inputs="X* Scale",
    outputs="Out* FoundInfinite",
    grad=None,
    lod=None,
    infer=_like_gradients,
)
def check_finite_and_unscale(gradients, scale):
    """Gradients divided by the scale, and whether an element of any of them is not finite."""
    unscaled = [_map(gradient, lambda x: x / scale.astype(x.dtype)) for gradient in gradients]
    finite = jnp.stack([jnp.all(jnp.isfinite(_values(gradient))) for gradient in unscaled])
    return unscaled, ~jnp.all(finite).reshape(1)


def _updated(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {
        "Out": inputs["X"],
        "LossScaling": inputs["PrevLossScaling"],
        "OutGoodSteps": inputs["InGoodSteps"],
        "OutBadSteps": inputs["InBadSteps"],
    }


@op(
    "update_loss_scaling",
    inputs="X* FoundInfinite PrevLossScaling InGoodSteps InBadSteps",
    outputs="Out* LossScaling OutGoodSteps OutBadSteps",
    grad=None,
    lod=None,
    infer=_updated,
)
def update_loss_scaling(
    gradients,
    found_infinite,
    scale,
    good_steps,
    bad_steps,
    *,
    incr_every_n_steps=1000,
    decr_every_n_nan_or_inf=2,
    incr_ratio=2.0,
    decr_ratio=0.8,
):
    """Zero gradients if one was not finite; and the scale, larger after many good steps, smaller after some bad ones.

    As in Fluid 1.8, it changes with the step *after* so many; it stays finite, and at least 1.
    """
    is_bad = found_infinite.reshape(())
    kept = [_map(gradient, lambda x: jnp.where(is_bad, jnp.zeros_like(x), x)) for gradient in gradients]
    grows = ~is_bad & (good_steps + 1 > incr_every_n_steps)
    shrinks = is_bad & (bad_steps + 1 > decr_every_n_nan_or_inf)
    larger = scale * jnp.asarray(incr_ratio, scale.dtype)
    larger = jnp.where(jnp.isfinite(larger), larger, scale)
    smaller = jnp.maximum(scale * jnp.asarray(decr_ratio, scale.dtype), jnp.ones_like(scale))
    good = jnp.where(is_bad | grows, jnp.zeros_like(good_steps), good_steps + 1)
    bad = jnp.where(is_bad & ~shrinks, bad_steps + 1, jnp.zeros_like(bad_steps))
    return kept, jnp.where(grows, larger, jnp.where(shrinks, smaller, scale)), good, bad


def _map(gradient: Any, function: Any) -> Any:
    return gradient.map_values(function) if isinstance(gradient, SelectedRows) else function(gradient)


def _values(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, SelectedRows) else gradient
