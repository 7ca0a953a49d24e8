"""Loss layers, except those that sample classes."""

from __future__ import annotations

from typing import Any

from paddle.fluid import layers
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics import find_layer as __getattr__  # noqa: F401
from paddle.fluid.layers._topics.core.append import append_output, append_single_op, require_floating
from refluid.ir import Variable

__all__ = [
    "bpr_loss",
    "center_loss",
    "cross_entropy",
    "dice_loss",
    "huber_loss",
    "kldiv_loss",
    "label_smooth",
    "log_loss",
    "margin_rank_loss",
    "mse_loss",
    "npair_loss",
    "rank_loss",
    "sigmoid_cross_entropy_with_logits",
    "smooth_l1",
    "softmax",
    "softmax_with_cross_entropy",
    "square_error_cost",
    "teacher_student_sigmoid_loss",
]

kIgnoreIndex = -100


def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Variable:
    """Computes exp(input) normalized to sum to 1 along ``axis``."""
    require_floating("softmax", input=input)
    attrs = {"axis": axis, "use_cudnn": use_cudnn}
    return append_single_op("softmax", {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = kIgnoreIndex
) -> Variable:
    """Computes the negative log likelihood of the label, given probabilities over the last dim.

    Args:
      soft_label: label is a distribution over classes instead of a class index.
      ignore_index: a hard label whose loss is 0.
    """
    require_floating("cross_entropy", input=input)
    inputs = {"X": input, "Label": label}
    if soft_label:
        attrs = {"soft_label": True, "ignore_index": ignore_index}
        return append_single_op("cross_entropy", inputs, {"Y": input.dtype}, attrs)["Y"]
    outputs = {"Y": input.dtype, "XShape": input.dtype, "MatchX": input.dtype}
    return append_single_op("cross_entropy2", inputs, outputs, {"ignore_index": ignore_index})["Y"]


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = kIgnoreIndex,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    """Computes the cross entropy of softmax(logits) in one numerically stable op.

    Returns:
      The loss, or (loss, softmax) with ``return_softmax``. No gradient flows through the returned softmax.
    """
    require_floating("softmax_with_cross_entropy", logits=logits)
    attrs = {
        "soft_label": soft_label,
        "ignore_index": ignore_index,
        "numeric_stable_mode": numeric_stable_mode,
        "axis": axis,
    }
    outputs = {"Softmax": logits.dtype, "Loss": logits.dtype}
    made = append_single_op("softmax_with_cross_entropy", {"Logits": logits, "Label": label}, outputs, attrs)
    return (made["Loss"], made["Softmax"]) if return_softmax else made["Loss"]


def sigmoid_cross_entropy_with_logits(
    x: Variable, label: Variable, ignore_index: int = kIgnoreIndex, name: str | None = None, normalize: bool = False
) -> Variable:
    """Computes the element-wise logistic loss; ``normalize`` divides by the number of entries that are not ignored."""
    require_floating("sigmoid_cross_entropy_with_logits", x=x)
    attrs = {"ignore_index": ignore_index, "normalize": normalize}
    inputs = {"X": x, "Label": label}
    return append_single_op("sigmoid_cross_entropy_with_logits", inputs, {"Out": x.dtype}, attrs, name)["Out"]


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """Computes (input - label)^2 element-wise.

    Raises:
      ValueError: the difference would be larger than both, as with [N, 1] and [N]. Real Fluid trains on all
        pairs (differs: all-pairs).
    """
    require_floating("square_error_cost", input=input, label=label)
    helper = LayerHelper("square_error_cost", input=input)
    difference = append_output(helper, {"X": input, "Y": label}, input.dtype, op_type="elementwise_sub")
    if difference.shape not in (input.shape, label.shape):
        raise ValueError(
            f"square_error_cost: input {input.name} {list(input.shape)} and label {label.name} {list(label.shape)} "
            f"would be compared in all pairs, as {list(difference.shape)}; reshape one of them"
        )
    return append_output(helper, {"X": difference}, input.dtype, op_type="square")


def mse_loss(input: Variable, label: Variable) -> Variable:
    """Computes the mean of (input - label)^2."""
    return layers.reduce_mean(square_error_cost(input, label))


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Computes the smooth L1 loss of each row: quadratic near zero and linear beyond 1 / sigma^2.

    Args:
      inside_weight: multiplies x - y.
      outside_weight: multiplies the loss.
    """
    require_floating("smooth_l1", x=x, y=y)
    inputs = {"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight}
    outputs = {"Diff": x.dtype, "Out": x.dtype}
    return append_single_op("smooth_l1_loss", inputs, outputs, {"sigma": 1.0 if sigma is None else sigma})["Out"]


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Computes half the squared error up to ``delta`` and a linear loss beyond."""
    require_floating("huber_loss", input=input, label=label)
    outputs = {"Residual": input.dtype, "Out": input.dtype}
    return append_single_op("huber_loss", {"X": input, "Y": label}, outputs, {"delta": delta})["Out"]


def log_loss(input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None) -> Variable:
    """Computes the negative log likelihood of a probability, given a label between 0 and 1."""
    require_floating("log_loss", input=input, label=label)
    inputs = {"Predicted": input, "Labels": label}
    return append_single_op("log_loss", inputs, {"Loss": input.dtype}, {"epsilon": epsilon}, name)["Loss"]


def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Computes the Kullback-Leibler divergence of exp(x) from ``target``; reduction is none, batchmean, mean or sum."""
    require_floating("kldiv_loss", x=x, target=target)
    inputs = {"X": x, "Target": target}
    return append_single_op("kldiv_loss", inputs, {"Loss": x.dtype}, {"reduction": reduction}, name)["Loss"]


def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """Computes the RankNet loss; ``label`` is the probability that left ranks above right."""
    require_floating("rank_loss", label=label, left=left, right=right)
    inputs = {"Label": label, "Left": left, "Right": right}
    return append_single_op("rank_loss", inputs, {"Out": left.dtype}, name=name)["Out"]


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """Computes max(0, -label * (left - right) + margin), where label is 1 or -1."""
    require_floating("margin_rank_loss", label=label, left=left, right=right)
    inputs = {"Label": label, "X1": left, "X2": right}
    outputs = {"Out": left.dtype, "Activated": left.dtype}
    return append_single_op("margin_rank_loss", inputs, outputs, {"margin": margin}, name)["Out"]


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Computes the Bayesian personalized ranking loss of the label's score against every other score."""
    require_floating("bpr_loss", input=input)
    return append_single_op("bpr_loss", {"X": input, "Label": label}, {"Y": input.dtype}, name=name)["Y"]


def teacher_student_sigmoid_loss(
    input: Variable, label: Variable, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> Variable:
    """Computes the logistic loss of a click and, if available, of a teacher's score, both encoded in ``label``.

    Args:
      label: -2 no click, -1 click; with a score s, s for no click and 1 + s for a click.
      soft_max_up_bound, soft_max_lower_bound: no gradient flows beyond these bounds.
    """
    require_floating("teacher_student_sigmoid_loss", input=input, label=label)
    helper = LayerHelper("teacher_student_sigmoid_loss", input=input)
    out = helper.create_variable(dtype=input.dtype)
    attrs = {"soft_max_lower_bound": float(soft_max_lower_bound), "soft_max_up_bound": float(soft_max_up_bound)}
    helper.append_op(type=helper.layer_type, inputs={"X": input, "Label": label}, outputs={"Y": out}, attrs=attrs)
    return out


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Smooths one-hot labels: moves ``epsilon`` of the mass to a prior distribution, uniform by default."""
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"label_smooth: epsilon must be between 0 and 1, not {epsilon}")
    require_floating("label_smooth", label=label)
    label.stop_gradient = True
    inputs = {"X": label, "PriorDist": prior_dist}
    return append_single_op("label_smooth", inputs, {"Out": dtype}, {"epsilon": float(epsilon)}, name)["Out"]


def dice_loss(input: Variable, label: Variable, epsilon: float = 1e-5, name: str | None = None) -> Variable:
    """Computes one minus the Dice coefficient of prediction and label, averaged over the batch."""
    label = layers.one_hot(label, depth=input.shape[-1])
    dims = list(range(1, len(input.shape)))
    overlap = layers.reduce_sum(input * label, dim=dims)
    sizes = layers.reduce_sum(input, dim=dims) + layers.reduce_sum(label, dim=dims)
    return layers.reduce_mean(1 - overlap * 2 / (sizes + epsilon))


def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Variable:
    """Computes the softmax loss over the similarities of each anchor to all positives; targets share its label."""
    require_floating("npair_loss", anchor=anchor, positive=positive)
    batch_size = labels.shape[0]
    labels = layers.reshape(labels, shape=[batch_size, 1])
    labels = layers.expand(labels, expand_times=[1, batch_size])
    same = layers.equal(labels, layers.transpose(labels, perm=[1, 0])).astype("float32")
    target = same / layers.reduce_sum(same, dim=1, keep_dim=True)
    sizes = [layers.reduce_mean(layers.reduce_sum(layers.square(x), 1)) for x in (anchor, positive)]
    penalty = (sizes[0] + sizes[1]) * 0.25 * l2_reg
    similarity = layers.matmul(anchor, positive, transpose_x=False, transpose_y=True)
    loss = softmax_with_cross_entropy(similarity, target, soft_label=True)
    return penalty + layers.reduce_mean(layers.reduce_sum(target * loss, 0))


def center_loss(
    input: Variable, label: Variable, num_classes: int, alpha: Any, param_attr: Any, update_center: bool = True
) -> Variable:
    """Computes half the squared distance to the label's center; the centers follow the inputs at rate ``alpha``."""
    helper = LayerHelper("center_loss", **locals())
    dtype = helper.input_dtype()
    centers = helper.create_parameter(attr=helper.param_attr, shape=[num_classes, input.shape[1]], dtype=dtype)
    centers.stop_gradient = True
    if not isinstance(alpha, Variable):
        alpha = helper.create_variable(
            name="centerloss_alpha",
            shape=[1],
            dtype="float32",
            persistable=True,
            stop_gradient=True,
            initializer=Constant(float(alpha)),
        )
    difference, loss = (helper.create_variable_for_type_inference(dtype) for _ in range(2))
    helper.append_op(
        type="center_loss",
        inputs={"X": [input], "Label": [label], "Centers": [centers], "CenterUpdateRate": [alpha]},
        outputs={"SampleCenterDiff": [difference], "Loss": [loss], "CentersOut": [centers]},
        attrs={"cluster_num": num_classes, "need_update": update_center},
    )
    return loss
