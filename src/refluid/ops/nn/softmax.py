"""Softmax and the cross entropies: classification losses.

Gradients are written out where Fluid's differ from the derivative of the forward rule (clipping affects the value,
not the gradient) or where the saved softmax makes them one fused expression.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import has_columns, not_along_rows
from refluid.ops.core.shapes import require_same_shape
from refluid.ops.core.values import as_ids

# Fluid's lower bound on the argument of exp(), so that no probability is exactly zero.
_LOWEST_SHIFTED_LOGIT = -64.0
# Fluid's substitute for an infinite logarithm.
_LARGE = 1e20


@op("softmax", inputs="X", outputs="Out", row_wise=not_along_rows("axis"))
def softmax(x, *, axis=-1):
    """exp(x) normalised along ``axis``, with x - max(x) clipped at -64, as in Fluid."""
    exponentials = jnp.exp(_shifted(x, x.max(axis, keepdims=True)))
    return exponentials / exponentials.sum(axis, keepdims=True)


@op("softmax_grad", inputs="Out Out@GRAD", outputs="X@GRAD", grad=None, row_wise=not_along_rows("axis", slot="Out"))
def softmax_grad(out, out_grad, *, axis=-1):
    """out * (dout - sum(dout * out))."""
    return out * (out_grad - (out * out_grad).sum(axis, keepdims=True))


@op(
    "softmax_with_cross_entropy",
    inputs="Logits Label",
    outputs="Softmax Loss",
    differentiable="Logits",
    row_wise=not_along_rows("axis", slot="Logits"),
)
def softmax_with_cross_entropy(logits, label, *, soft_label=False, ignore_index=-100, axis=-1):
    """-log(softmax(logits))[label] along ``axis``; soft labels weight every class."""
    _check_label(logits, label, soft_label, axis)
    highest = logits.max(axis, keepdims=True)
    shifted = _shifted(logits, highest)
    exponentials = jnp.exp(shifted)
    total = exponentials.sum(axis, keepdims=True)
    if soft_label:
        loss = (label * (jnp.log(total) - shifted)).sum(axis, keepdims=True)
    else:
        require_in_range(label, logits.shape[axis], slot="Label", ignore=ignore_index)
        label = as_ids(label)
        # Picking from the logits rather than from `shifted` saves XLA from writing `shifted` to memory.
        loss = jnp.log(total) - _shifted(_pick(logits, label, ignore_index, axis), highest)
        loss = jnp.where(label == ignore_index, 0.0, loss)
    return exponentials / total, loss


@op(
    "softmax_with_cross_entropy_grad",
    inputs="Label Softmax Loss@GRAD",
    outputs="Logits@GRAD",
    grad=None,
    row_wise=not_along_rows("axis", slot="Softmax"),
)
def softmax_with_cross_entropy_grad(label, probabilities, loss_grad, *, soft_label=False, ignore_index=-100, axis=-1):
    """(softmax - label) * dloss. As in Fluid, no gradient flows through Softmax.

    Ignored rows get zeros, as in Fluid's GPU kernel; its CPU kernel forgets ``ignore_index`` (differs: ignore-index).
    """
    if soft_label:
        return (probabilities - label) * loss_grad
    loss_grad = jnp.where(label == ignore_index, 0.0, loss_grad)
    return jnp.where(_is_class(probabilities, label, axis), probabilities - 1, probabilities) * loss_grad


@op("cross_entropy", inputs="X Label", outputs="Y", differentiable="X", row_wise=has_columns())
def cross_entropy(x, label, *, soft_label=False, ignore_index=-100):
    """-log(x)[label] over the last dim, for probabilities x; an infinite logarithm counts as 1e20."""
    if soft_label:
        require_same_shape(X=x, Label=label)
        return -(label * _bounded_log(x)).sum(-1, keepdims=True)
    _check_hard_label(x, label)
    require_in_range(label, x.shape[-1], slot="Label", ignore=ignore_index)
    label = as_ids(label)
    loss = -_bounded_log(_pick(x, _column(label, x), ignore_index, -1)).reshape(label.shape)
    return jnp.where(label == ignore_index, 0.0, loss)


@op("cross_entropy_grad", inputs="X Label Y@GRAD", outputs="X@GRAD", grad=None, row_wise=has_columns())
def cross_entropy_grad(x, label, y_grad, *, soft_label=False, ignore_index=-100):
    """-dy / x at the label, even where the logarithm is bounded."""
    if soft_label:
        return -label * y_grad / x
    return _hard_label_grad(x.shape, label, _pick(x, _column(label, x), ignore_index, -1), y_grad, ignore_index)


@op("cross_entropy2", inputs="X Label", outputs="Y MatchX XShape", differentiable="X", row_wise=has_columns())
def cross_entropy2(x, label, *, ignore_index=-100):
    """cross_entropy with hard labels that keeps the picked probabilities for its gradient."""
    _check_hard_label(x, label)
    require_in_range(label, x.shape[-1], slot="Label", ignore=ignore_index)
    label = as_ids(label)
    ignored = label == ignore_index
    match = _pick(x, _column(label, x), ignore_index, -1)
    loss = jnp.where(ignored, 0.0, -_bounded_log(match).reshape(label.shape))
    return loss, jnp.where(ignored.reshape(match.shape), 0.0, match), jnp.zeros((*x.shape, 0), x.dtype)


@op("cross_entropy2_grad", inputs="Label MatchX XShape Y@GRAD", outputs="X@GRAD", grad=None, row_wise=True)
def cross_entropy2_grad(label, match, x_shape, y_grad, *, ignore_index=-100):
    """-dy / x at the label."""
    return _hard_label_grad(x_shape.shape[:-1], label, match, y_grad, ignore_index)


@op(
    "sigmoid_cross_entropy_with_logits",
    inputs="X Label",
    outputs="Out",
    differentiable="X",
    row_wise=lambda attrs, arguments: not attrs.get("normalize"),
)
def sigmoid_cross_entropy_with_logits(x, label, *, ignore_index=-100, normalize=False):
    """-label * log(sigmoid(x)) - (1 - label) * log(1 - sigmoid(x)), elementwise."""
    require_same_shape(X=x, Label=label)
    counted = label != ignore_index
    loss = jnp.where(counted, jax.nn.softplus(x) - x * label, 0.0)
    if normalize:
        loss = loss / jnp.maximum(counted.sum(dtype=x.dtype), 1e-5)
    return loss


def _shifted(logits, highest):
    return jnp.maximum(logits - highest, _LOWEST_SHIFTED_LOGIT)


def _bounded_log(x):
    return jnp.clip(jnp.log(x), -_LARGE, _LARGE)


def _column(label, x):
    """The label with a last dim of 1; Fluid also accepts labels without it."""
    return label if label.ndim == x.ndim else label[..., None]


def _pick(x, label, ignore_index, axis):
    """x at the label along ``axis``, or at 0 where the label is ignored."""
    index = jnp.where(label == ignore_index, 0, label)
    return jnp.take_along_axis(x, index, axis, mode="clip")


def _is_class(x, label, axis):
    """The mask of x at the label along ``axis``. A comparison fuses with what follows; a scatter would not."""
    axis = axis % x.ndim
    return jax.lax.broadcasted_iota(jnp.int32, x.shape, axis) == label.astype(jnp.int32)


def _hard_label_grad(shape, label, match, y_grad, ignore_index):
    label, match, y_grad = (value.reshape(*shape[:-1], 1) for value in (label, match, y_grad))
    at_label = jnp.where(label == ignore_index, 0.0, -y_grad / match)
    places = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
    return jnp.where(places == label.astype(jnp.int32), at_label, 0.0)


def _check_hard_label(x, label):
    if label.shape not in (x.shape[:-1], (*x.shape[:-1], 1)):
        raise ValueError("Label must have the shape of X with 1 as its last dim, or without that dim")


def _check_label(logits, label, soft_label, axis):
    expected = list(logits.shape)
    if not soft_label:
        expected[axis] = 1
    if list(label.shape) != expected:
        shape = "the shape of Logits" if soft_label else f"the shape of Logits with 1 at axis {axis}"
        raise ValueError(f"Label must have {shape}, as soft_label is {soft_label}")
