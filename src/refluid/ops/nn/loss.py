"""Regression, distance, margin and distillation losses.

Outputs that Fluid calls intermediate exist for its gradient kernels; no gradient flows through them.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.registry import op
from refluid.ops.core.shapes import column_of, require_rows_like, require_same_shape
from refluid.ops.core.values import as_ids


@op(
    "smooth_l1_loss",
    inputs="X Y InsideWeight? OutsideWeight?",
    outputs="Diff Out",
    differentiable="X Y",
    lod=None,
    row_wise=True,
)
def smooth_l1_loss(x, y, inside_weight=None, outside_weight=None, *, sigma=1.0):
    """Row sums of 0.5 (sigma d)^2 where |d| < 1 / sigma^2, else |d| - 0.5 / sigma^2, with d = (x - y) * inside."""
    require_same_shape(X=x, Y=y, InsideWeight=inside_weight, OutsideWeight=outside_weight)
    diff = x - y if inside_weight is None else (x - y) * inside_weight
    sharpness = sigma * sigma
    size = jnp.abs(diff)
    loss = jnp.where(size < 1 / sharpness, 0.5 * sharpness * diff * diff, size - 0.5 / sharpness)
    if outside_weight is not None:
        loss = loss * outside_weight
    return stop_gradient(diff), loss.reshape(x.shape[0], -1).sum(1, keepdims=True)


@op("huber_loss", inputs="X Y", outputs="Residual Out", differentiable="X Y", row_wise=True)
def huber_loss(x, y, *, delta):
    """0.5 r^2 where |r| <= delta, else delta * (|r| - 0.5 delta), with r = y - x."""
    require_same_shape(X=x, Y=y)
    residual = y - x
    size = jnp.abs(residual)
    return stop_gradient(residual), jnp.where(size <= delta, 0.5 * residual * residual, delta * (size - 0.5 * delta))


@op("modified_huber_loss", inputs="X Y", outputs="IntermediateVal Out", differentiable="X", row_wise=True)
def modified_huber_loss(x, y):
    """max(0, 1 - m)^2 where m >= -1, else -4 m, with the margin m = x * (2 y - 1)."""
    require_same_shape(X=x, Y=y)
    margin = x * (2 * y - 1)
    return stop_gradient(margin), jnp.where(margin < -1, -4 * margin, jax.nn.relu(1 - margin) ** 2)


@op("hinge_loss", inputs="Logits Labels", outputs="Loss", differentiable="Logits", row_wise=True)
def hinge_loss(logits, labels):
    """max(0, 1 - logits * (2 labels - 1))."""
    require_same_shape(Logits=logits, Labels=labels)
    return jax.nn.relu(1 - logits * (2 * labels - 1))


@op("log_loss", inputs="Predicted Labels", outputs="Loss", differentiable="Predicted", row_wise=True)
def log_loss(predicted, labels, *, epsilon):
    """-labels * log(predicted + epsilon) - (1 - labels) * log(1 - predicted + epsilon)."""
    require_same_shape(Predicted=predicted, Labels=labels)
    # The maximum changes nothing; without it XLA adds epsilon to 1 first and loses most of its digits.
    others = jnp.maximum(1 - predicted, -1.0)
    return -labels * jnp.log(predicted + epsilon) - (1 - labels) * jnp.log(others + epsilon)


@op("bce_loss", inputs="X Label", outputs="Out", differentiable="X", row_wise=True)
def bce_loss(x, label):
    """-label * log(x) - (1 - label) * log(1 - x), each logarithm at least -100."""
    require_same_shape(X=x, Label=label)
    return -label * jnp.maximum(jnp.log(x), -100.0) - (1 - label) * jnp.maximum(jnp.log1p(-x), -100.0)


@op("bce_loss_grad", inputs="X Label Out@GRAD", outputs="X@GRAD", grad=None, row_wise=True)
def bce_loss_grad(x, label, out_grad):
    """dout * (x - label) / max(x (1 - x), 1e-12)."""
    return out_grad * (x - label) / jnp.maximum((1 - x) * x, 1e-12)


@op(
    "kldiv_loss",
    inputs="X Target",
    outputs="Loss",
    differentiable="X",
    lod=None,
    row_wise=lambda attrs, arguments: attrs.get("reduction") == "none",
)
def kldiv_loss(x, target, *, reduction="mean"):
    """target * (log(target) - x) where target > 0, else 0; x holds log probabilities."""
    require_same_shape(X=x, Target=target)
    positive = target > 0
    loss = jnp.where(positive, target * (jnp.log(jnp.where(positive, target, 1.0)) - x), 0.0)
    if reduction == "none":
        return loss
    sizes = {"sum": 1, "batchmean": x.shape[0], "mean": math.prod(x.shape)}
    if reduction not in sizes:
        raise ValueError(f"reduction must be none, batchmean, mean or sum, not {reduction!r}")
    return loss.sum().reshape(1) / sizes[reduction]


@op("squared_l2_distance", inputs="X Y", outputs="sub_result Out", differentiable="X Y", row_wise=True)
def squared_l2_distance(x, y):
    """Row sums of (x - y)^2; a one-row y is compared with every row of x."""
    require_rows_like(x, y)
    difference = x.reshape(x.shape[0], -1) - y.reshape(y.shape[0], -1)
    return stop_gradient(difference), (difference * difference).sum(1, keepdims=True)


@op("label_smooth", inputs="X PriorDist?", outputs="Out", differentiable="X", row_wise=True)
def label_smooth(x, prior=None, *, epsilon=0.0):
    """(1 - epsilon) * x + epsilon * prior, with a uniform prior by default."""
    if prior is None:
        return (1 - epsilon) * x + epsilon / x.shape[-1]
    return (1 - epsilon) * x + epsilon * prior.reshape(x.shape[-1])


@op("teacher_student_sigmoid_loss", inputs="X Label", outputs="Y", differentiable="X", row_wise=True)
def teacher_student_sigmoid_loss(x, label, *, soft_max_up_bound=15.0, soft_max_lower_bound=-15.0):
    """Sigmoid cross entropy with the click, plus that with the teacher's score if there is one.

    One number encodes both: -2 no click, -1 click, score in [0, 1) no click and a score, 1 + score click and a score.
    """
    require_same_shape(X=x, Label=label)
    clicked, score = _click_and_score(label)
    logistic = jax.nn.softplus(x)
    student = logistic - x * clicked
    return jnp.where(label < 0, student, student + logistic - x * score)


@op("teacher_student_sigmoid_loss_grad", inputs="X Label Y@GRAD", outputs="X@GRAD", grad=None, row_wise=True)
def teacher_student_sigmoid_loss_grad(x, label, y_grad, *, soft_max_up_bound=15.0, soft_max_lower_bound=-15.0):
    """The derivative inside the bounds, 0 outside."""
    clicked, score = _click_and_score(label)
    probability = jax.nn.sigmoid(x)
    slope = jnp.where(label < 0, probability - clicked, 2 * probability - clicked - score)
    inside = (x < soft_max_up_bound) & (x > soft_max_lower_bound)
    return jnp.where(inside, slope * y_grad, 0.0)


def _click_and_score(label):
    clicked = ((label >= -1) & (label < 0)) | (label >= 1)
    return clicked.astype(label.dtype), jnp.where(label >= 1, label - 1, label)


@op(
    "center_loss",
    inputs="X Label Centers CenterUpdateRate",
    outputs="CentersOut SampleCenterDiff Loss",
    differentiable="X",
)
def center_loss(x, label, centers, rate, *, cluster_num, need_update=True):
    """0.5 |x - centers[label]|^2 for each row; the centers move towards the rows of their class."""
    require_in_range(label, cluster_num, slot="Label")
    label = column_of("Label", as_ids(label), x.shape[0]).reshape(-1)
    difference = x - centers[label]
    loss = 0.5 * (difference * difference).reshape(x.shape[0], -1).sum(1, keepdims=True)
    if need_update:
        moves = jnp.zeros_like(centers).at[label].add(stop_gradient(difference))
        members = jnp.ones(centers.shape[0], centers.dtype).at[label].add(1)
        centers = centers + rate.reshape(()) * moves / members[:, None]
    return centers, stop_gradient(difference), loss


@op("nll_loss", inputs="X Label Weight?", outputs="Out Total_weight", differentiable="X", lod=None)
def nll_loss(x, label, weight=None, *, ignore_index=-100, reduction="mean"):
    """-x[label] * weight[label] for log probabilities x of classes in the second dim; their mean is weighted."""
    require_in_range(label, x.shape[1], slot="Label", ignore=ignore_index)
    label = as_ids(label)
    counts = label != ignore_index
    safe = jnp.where(counts, label, 0)
    weights = jnp.ones(x.shape[1], x.dtype) if weight is None else weight
    weights = jnp.where(counts, weights[safe], 0)
    losses = -jnp.take_along_axis(x, safe[:, None], 1)[:, 0] * weights
    if reduction == "none":
        return losses, jnp.zeros(1, x.dtype)
    total, share = losses.sum().reshape(1), stop_gradient(weights.sum()).reshape(1)
    if reduction == "sum":
        return total, share
    if reduction != "mean":
        raise ValueError(f"reduction must be none, mean or sum, not {reduction!r}")
    return jnp.where(share == 0, 0, total / jnp.where(share == 0, 1, share)), share
