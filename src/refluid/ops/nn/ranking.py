"""Ranking losses over pairs of scores or classes, and a metric of correctly ordered pairs."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.registry import op
from refluid.ops.core.shapes import column_of, require_one_for_each_row, require_same_shape
from refluid.ops.core.values import as_ids


@op("rank_loss", inputs="Label Left Right", outputs="Out", differentiable="Left Right", lod=None, row_wise=True)
def rank_loss(label, left, right):
    """log(1 + exp(left - right)) - label * (left - right), in the shape of the label."""
    rows = label.shape[0]
    marks, left, right = column_of("Label", label, rows), column_of("Left", left, rows), column_of("Right", right, rows)
    difference = left - right
    return (jax.nn.softplus(difference) - marks * difference).reshape(label.shape)


@op("margin_rank_loss", inputs="Label X1 X2", outputs="Activated Out", differentiable="X1 X2", lod=None, row_wise=True)
def margin_rank_loss(label, x1, x2, *, margin=0.0):
    """max(0, -label * (x1 - x2) + margin), and a mask of where it is positive."""
    require_same_shape(Label=label, X1=x1, X2=x2)
    out = jax.nn.relu(-label * (x1 - x2) + margin)
    return (out > 0).astype(out.dtype), out


@op("bpr_loss", inputs="X Label", outputs="Y", differentiable="X", row_wise=True)
def bpr_loss(x, label):
    """The mean of log(1 + exp(x_other - x_label)) over the other classes; an overflow counts as log(1e20)."""
    classes = x.shape[-1]
    require_in_range(label, classes, slot="Label")
    if tuple(label.shape) not in (x.shape[:-1], (*x.shape[:-1], 1)):
        raise ValueError(f"Label must have the shape {[*x.shape[:-1], 1]}, not {list(label.shape)}")
    label = as_ids(label).reshape(*x.shape[:-1], 1)
    margins = x - jnp.take_along_axis(x, label, -1, mode="clip")
    overflows = margins > math.log(float(jnp.finfo(x.dtype).max))
    losses = jnp.where(overflows, _with_value(margins, math.log(1e20)), jax.nn.softplus(margins))
    others = jax.lax.broadcasted_iota(label.dtype, x.shape, x.ndim - 1) != label
    return jnp.where(others, losses, 0.0).sum(-1, keepdims=True) / (classes - 1)


def _with_value(x, value):
    """``value`` with the gradient of x."""
    return x + jax.lax.stop_gradient(value - x)


@op(
    "positive_negative_pair",
    inputs="Score Label QueryID AccumulatePositivePair? AccumulateNegativePair? AccumulateNeutralPair? Weight?",
    outputs="PositivePair NegativePair NeutralPair",
    grad=None,
    lod=None,
)
def positive_negative_pair(score, label, query, positive=None, negative=None, neutral=None, weight=None, *, column=0):
    """Total weights of the pairs within a query that the score orders like the label, unlike it, or not at all.

    A pair with equal scores counts as both neutral and negative, as in Fluid.
    """
    require_one_for_each_row(score, Label=label, QueryID=query)
    score, label, query = score[:, column], label.reshape(-1), query.reshape(-1)
    weight = jnp.ones_like(score) if weight is None else weight.reshape(-1)
    later = jnp.arange(score.size)[:, None] < jnp.arange(score.size)
    paired = later & (query[:, None] == query) & (label[:, None] != label)
    weights = jnp.where(paired, (weight[:, None] + weight) * 0.5, 0.0)
    agrees = (score[:, None] - score) * (label[:, None] - label) > 0

    def total(where, before):
        count = jnp.where(where, weights, 0.0).sum().reshape(1)
        return count if before is None else before + count

    return total(agrees, positive), total(~agrees, negative), total(score[:, None] == score, neutral)
