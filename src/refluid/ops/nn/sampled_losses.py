"""Losses over many classes that evaluate only a few of them: nce, hierarchical_sigmoid, sample_logits.

Their gradients are written out: two of them draw samples that the gradient must reuse, and the gradient of a sparse
weight holds only the rows used. Rows may repeat there; Fluid merges them at once.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from refluid.ops.core import noise
from refluid.ops.core.checks import require_in_range
from refluid.ops.core.registry import op
from refluid.ops.core.shapes import column_of, require_as_many_rows
from refluid.ops.core.values import SelectedRows, as_ids

_UNIFORM, _LOG_UNIFORM, _CUSTOM = 0, 1, 2
_LARGE = 1e20


@op(
    "nce",
    inputs="Input Label Weight Bias? SampleWeight? CustomDistProbs? CustomDistAlias? CustomDistAliasProbs?",
    outputs="Cost SampleLogits SampleLabels",
    differentiable="Input Weight Bias",
    random=True,
    lod=None,
)
def nce(
    input,
    label,
    weight,
    bias=None,
    sample_weight=None,
    probabilities=None,
    alias=None,
    alias_probabilities=None,
    *,
    num_total_classes,
    num_neg_samples=10,
    sampler=_UNIFORM,
    custom_neg_classes=(),
    is_sparse=False,
    key,
):
    """Separates the true classes from sampled ones by logistic regression.

    With p = sigmoid(x . w + b) and q = samples * P(class), a true class costs -log(p / (p + q)) and a sampled one
    -log(q / (p + q)). SampleLogits holds p.
    """
    labels = draw_classes(
        label, alias, alias_probabilities, num_total_classes, num_neg_samples, sampler, custom_neg_classes, key
    )
    expected = expected_count(labels, sampler, num_total_classes, num_neg_samples, probabilities)
    cost, found = nce_of_rows(input, weight[labels], bias, sample_weight, labels, expected, num_neg_samples)
    return cost, found, labels


def draw_classes(label, alias, alias_probabilities, classes, samples, sampler, custom_neg_classes, key):
    """The true classes of each sample, and classes drawn for it."""
    require_in_range(label, classes, slot="Label")
    label = as_ids(label).reshape(label.shape[0], -1)
    shape = (label.shape[0], samples)
    if custom_neg_classes:
        negatives = jnp.broadcast_to(jnp.asarray(custom_neg_classes, label.dtype), shape)
    elif sampler == _UNIFORM:
        negatives = noise.integers(key, shape, label.dtype, 0, classes)
    elif sampler == _LOG_UNIFORM:
        fractions = noise.uniform(key, shape, jnp.float32)
        negatives = jnp.exp(fractions * math.log(classes)).astype(label.dtype) - 1
        negatives = jnp.clip(negatives, 0, classes - 1)
    else:
        negatives = _draw_from_alias_table(key, shape, alias, alias_probabilities).astype(label.dtype)
    return jnp.concatenate([label, negatives], 1)


def nce_of_rows(input, rows, bias, sample_weight, labels, expected, samples):
    """Cost and SampleLogits of nce, given the rows of the weight for all labels."""
    if labels.shape[0] != input.shape[0]:  # which einsum would broadcast if it is 1
        raise ValueError(
            f"Label must have one row for each of the {input.shape[0]} rows of Input, not {labels.shape[0]}"
        )
    logits = jnp.einsum("nd,nsd->ns", input, rows)
    if bias is not None:
        logits = logits + bias.reshape(-1)[labels]
    found = jax.nn.sigmoid(logits)
    expected = expected.astype(found.dtype)
    is_true = jnp.arange(labels.shape[1]) < labels.shape[1] - samples
    costs = jnp.log(found + expected) - jnp.log(jnp.where(is_true, found, expected))
    if sample_weight is not None:
        costs = costs * column_of("SampleWeight", sample_weight, input.shape[0])
    return costs.sum(1, keepdims=True), found


@op(
    "nce_grad",
    inputs="Input Label Weight Bias? SampleWeight? CustomDistProbs? SampleLogits SampleLabels Cost@GRAD",
    outputs="Input@GRAD Weight@GRAD Bias@GRAD",
    grad=None,
    lod=None,
    sparse_outputs=lambda attrs: {"Weight@GRAD"} if attrs.get("is_sparse") else set(),
)
def nce_grad(
    input,
    label,
    weight,
    bias,
    sample_weight,
    probabilities,
    found,
    labels,
    cost_grad,
    *,
    num_total_classes,
    num_neg_samples=10,
    sampler=_UNIFORM,
    is_sparse=False,
):
    """The derivative at the sampled classes."""
    expected = expected_count(labels, sampler, num_total_classes, num_neg_samples, probabilities)
    slopes = nce_slopes(found, expected, num_neg_samples, cost_grad, sample_weight)
    rows = weight.at[labels].get(mode="clip")
    return linear_grads(input, rows, bias, labels, slopes, weight.shape[0], is_sparse=is_sparse)


def nce_slopes(found, expected, samples, cost_grad, sample_weight):
    """The derivative by the logits."""
    expected = expected.astype(found.dtype)
    is_true = jnp.arange(found.shape[1]) < found.shape[1] - samples
    slopes = (1 - found) / (found + expected) * jnp.where(is_true, -expected, found) * cost_grad.reshape(-1, 1)
    return slopes if sample_weight is None else slopes * sample_weight.reshape(-1, 1)


def expected_count(labels, sampler, classes, samples, probabilities):
    """The expected count of each class among the samples."""
    if sampler == _UNIFORM:
        return jnp.full(labels.shape, samples / classes)
    if sampler == _LOG_UNIFORM:
        return _log_uniform_probability(labels, classes) * samples
    if sampler != _CUSTOM or probabilities is None:
        raise ValueError(f"sampler must be 0, 1, or 2 with CustomDistProbs, not {sampler}")
    return probabilities.reshape(-1)[labels] * samples


def _log_uniform_probability(classes, count):
    return jnp.log1p(1.0 / (classes.astype(jnp.float32) + 1)) / math.log(count)


def _draw_from_alias_table(key, shape, alias, alias_probabilities):
    """Draws a class uniformly, then keeps it or takes its alias."""
    places = noise.integers(key, shape, jnp.int32, 0, alias.size)
    stays = noise.uniform(noise.fold_in(key, 1), shape, jnp.float32) < alias_probabilities.reshape(-1)[places]
    other = alias.reshape(-1)[places]
    return jnp.where(stays | (other < 0), places, other)


def linear_grads(x, weight_rows, bias, rows, slopes, height, *, is_sparse):
    """Gradients of x, weight and bias of logits[n, s] = x[n] . weight[rows[n, s]] + bias[rows[n, s]].

    ``weight_rows`` are weight[rows], and ``height`` is the number of rows of the weight."""
    x_grad = jnp.einsum("ns,nsd->nd", slopes, weight_rows)
    rows = rows.reshape(-1)
    weight_grad = SelectedRows(rows, (slopes[..., None] * x[:, None]).reshape(-1, x.shape[1]), height)
    bias_grad = None
    if bias is not None:
        bias_grad = jnp.zeros(bias.size, bias.dtype).at[rows].add(slopes.reshape(-1), mode="drop").reshape(bias.shape)
    return x_grad, weight_grad if is_sparse else weight_grad.to_dense(), bias_grad


@op(
    "hierarchical_sigmoid",
    inputs="X W Label PathTable? PathCode? Bias?",
    outputs="Out PreOut W_Out",
    differentiable="X W Bias",
)
def hierarchical_sigmoid(x, w, label, table=None, code=None, bias=None, *, num_classes=2, is_sparse=False):
    """-log of the probability of the path to the label in a binary tree, one sigmoid at each inner node.

    PreOut holds log(1 + exp(score)) of each step. Steps past the end of a short path cost log(2), as in Fluid.
    """
    require_as_many_rows(X=x, Label=label, PathTable=table, PathCode=code)
    if table is None:
        require_in_range(label, num_classes, slot="Label")
    nodes, bits = path(label, table, code, num_classes, w.shape[0])
    return *path_costs(x, w.at[nodes].get(mode="fill", fill_value=0.0), bias, nodes, bits), None


def path_costs(x, rows, bias, nodes, bits):
    """Out and PreOut of hierarchical_sigmoid, given the rows of the weight for all nodes."""
    scores = jnp.einsum("nd,nld->nl", x, rows)
    if bias is not None:
        scores = scores + bias.reshape(-1).at[nodes].get(mode="fill", fill_value=0.0)
    scores = jnp.clip(scores, -40.0, 40.0)
    costs = jax.nn.softplus(scores)
    return (costs - bits.astype(x.dtype) * scores).sum(1, keepdims=True), costs


@op(
    "hierarchical_sigmoid_grad",
    inputs="X W Label PathTable? PathCode? Bias? PreOut Out@GRAD",
    outputs="X@GRAD W@GRAD Bias@GRAD",
    grad=None,
    lod=None,
    sparse_outputs=lambda attrs: {"W@GRAD"} if attrs.get("is_sparse") else set(),
)
def hierarchical_sigmoid_grad(x, w, label, table, code, bias, costs, out_grad, *, num_classes=2, is_sparse=False):
    """(sigmoid(score) - bit) * dout at every step of the path, even where the score is clipped."""
    nodes, bits = path(label, table, code, num_classes, w.shape[0])
    slopes = path_slopes(costs, bits, nodes, w.shape[0], out_grad)
    return linear_grads(x, w.at[nodes].get(mode="clip"), bias, nodes, slopes, w.shape[0], is_sparse=is_sparse)


def path_slopes(costs, bits, nodes, height, out_grad):
    """The derivative by the scores; steps past the end of a path have none."""
    slopes = (-jnp.expm1(-costs) - bits.astype(costs.dtype)) * out_grad.reshape(-1, 1)
    return jnp.where(nodes < height, slopes, 0.0)


def path(label: Any, table: Any, code: Any, classes: int, height: int) -> tuple[Any, Any]:
    """Inner nodes and branches on the path to each label; missing steps have node ``height`` and branch 0.

    Without a table the tree is complete: the leaf of class c is node c + classes, and the parent of node i is i // 2.
    """
    if table is not None:
        return jnp.where(table < 0, height, table), jnp.where(table < 0, 0, code)
    leaf = as_ids(label).reshape(-1, 1) + classes
    step = jnp.arange((classes - 1).bit_length(), dtype=leaf.dtype)
    parent = leaf >> (step + 1)
    return jnp.where(parent > 0, parent - 1, height), jnp.where(parent > 0, (leaf >> step) & 1, 0)


@op(
    "sample_logits",
    inputs="Logits Labels CustomizedSamples? CustomizedProbabilities?",
    outputs="Samples Probabilities SampledLogits SampledLabels LogitsDim LabelsDim",
    differentiable="Logits",
    random=True,
    lod=None,
)
def sample_logits(
    logits,
    labels,
    samples,
    probabilities,
    *,
    num_samples,
    use_customized_samples=False,
    remove_accidental_hits=True,
    key,
):
    """The logits of the labels and of sampled classes, minus the log probability of sampling each."""
    require_as_many_rows(Logits=logits, Labels=labels)
    require_in_range(labels, logits.shape[1], slot="Labels")
    labels = as_ids(labels)
    count = labels.shape[1]
    if not use_customized_samples:
        samples, probabilities = _sample_classes(key, labels, logits, num_samples)
    picked = jnp.take_along_axis(logits, samples, 1, mode="clip")
    if remove_accidental_hits:
        hits = (samples[:, count:, None] == labels[:, None]).any(-1)
        picked = picked.at[:, count:].add(jnp.where(hits, -_LARGE, 0.0))
    picked = picked - jnp.clip(jnp.log(probabilities), -_LARGE, _LARGE)
    sampled_labels = jnp.broadcast_to(jnp.arange(count, dtype=labels.dtype), labels.shape)
    shapes = (jnp.zeros((*value.shape, 0), value.dtype) for value in (logits, labels))
    return samples, probabilities, picked, sampled_labels, *shapes


@op("sample_logits_grad", inputs="LogitsDim Samples SampledLogits@GRAD", outputs="Logits@GRAD", grad=None, lod=None)
def sample_logits_grad(logits_dim, samples, sampled_grad):
    """The gradient of each sampled logit, added at its class."""
    rows = jnp.arange(samples.shape[0])[:, None]
    return jnp.zeros(logits_dim.shape[:-1], sampled_grad.dtype).at[rows, samples].add(sampled_grad, mode="drop")


def _sample_classes(key, labels, logits, count):
    """The labels and ``count`` distinct classes shared by all rows, with the probability that the draws hit each.

    Fluid draws from a log-uniform distribution until it has ``count`` distinct classes, and uses the number of draws.
    The top ``count`` of log probabilities plus Gumbel noise have the same distribution; the number of repeats between
    one new class and the next is geometric.
    """
    classes = logits.shape[1]
    probability = _log_uniform_probability(jnp.arange(classes), classes + 1)
    gumbel = -jnp.log(-jnp.log(noise.uniform(key, (classes,), jnp.float32, 1e-7, 1.0)))
    drawn = jax.lax.top_k(jnp.log(probability) + gumbel, count)[1]
    already_seen = jnp.clip(jnp.cumsum(probability[drawn])[:-1], 1e-7, 1 - 1e-7)
    fractions = noise.uniform(noise.fold_in(key, 1), already_seen.shape, jnp.float32, 1e-7, 1.0)
    repeats = jnp.floor(jnp.log(fractions) / jnp.log(already_seen)).sum()
    negatives = jnp.broadcast_to(drawn.astype(labels.dtype), (labels.shape[0], count))
    samples = jnp.concatenate([labels, negatives], 1)
    chance = probability[samples]
    met = jnp.where(repeats == 0, chance * count, -jnp.expm1((count + repeats) * jnp.log1p(-chance)))
    return samples, met.astype(logits.dtype)


@op("sampling_id", inputs="X", outputs="Out", grad=None, random=True, row_wise=True)
def sampling_id(x, *, min=0.0, max=1.0, key):
    """A class for each row of x, drawn with the row's probabilities."""
    fractions = noise.uniform(key, (x.shape[0], 1), x.dtype, min, max)
    passed = (fractions >= jnp.cumsum(x, 1)).sum(1, dtype=jnp.int64)
    return jnp.minimum(passed, x.shape[1] - 1)
