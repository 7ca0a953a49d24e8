"""nce and hierarchical_sigmoid in parts, for weights that live on servers: the rows to look up, and the loss of them.

The transpiler writes these operators in place of `nce` and `hierarchical_sigmoid` with is_sparse.
"""

from __future__ import annotations

import jax.numpy as jnp

from refluid.ops.core.registry import op
from refluid.ops.nn.sampled_losses import (
    draw_classes,
    expected_count,
    linear_grads,
    nce_of_rows,
    nce_slopes,
    path_costs,
    path_slopes,
)
from refluid.ops.nn.sampled_losses import path as path_of


def _sparse(attrs):
    return {"Weight@GRAD"}


@op("nce_labels", inputs="Label CustomDistAlias? CustomDistAliasProbs?", outputs="SampleLabels", grad=None, random=True)
def nce_labels(
    label,
    alias,
    alias_probs,
    *,
    num_total_classes,
    num_neg_samples=10,
    sampler=0,
    custom_neg_classes=(),
    drawn_for="",
    key,
):
    """The classes that nce would draw for the output ``drawn_for``."""
    return draw_classes(label, alias, alias_probs, num_total_classes, num_neg_samples, sampler, custom_neg_classes, key)


@op(
    "nce_of_rows",
    inputs="Input Rows SampleLabels Bias? SampleWeight? CustomDistProbs?",
    outputs="Cost SampleLogits",
    grad=None,
)
def nce_of_rows_(
    input,
    rows,
    labels,
    bias,
    sample_weight,
    probabilities,
    *,
    num_total_classes,
    num_neg_samples=10,
    sampler=0,
    height=0,
):
    """nce of the rows of its weight for its samples."""
    expected = expected_count(labels, sampler, num_total_classes, num_neg_samples, probabilities)
    return nce_of_rows(input, rows, bias, sample_weight, labels, expected, num_neg_samples)


@op(
    "nce_of_rows_grad",
    inputs="Input Rows SampleLabels Bias? SampleWeight? CustomDistProbs? SampleLogits Cost@GRAD",
    outputs="Input@GRAD Weight@GRAD Bias@GRAD",
    grad=None,
    sparse_outputs=_sparse,
)
def nce_of_rows_grad(
    input, rows, labels, bias, sample_weight, probabilities, found, cost_grad,
    *, num_total_classes, num_neg_samples=10, sampler=0, height=0,
):  # fmt: skip
    """The derivative at the sampled classes; ``height`` is the number of rows of the weight."""
    expected = expected_count(labels, sampler, num_total_classes, num_neg_samples, probabilities)
    slopes = nce_slopes(found, expected, num_neg_samples, cost_grad, sample_weight)
    return linear_grads(input, rows, bias, labels, slopes, height, is_sparse=True)


@op("path_nodes", inputs="PathTable", outputs="Nodes", grad=None)
def path_nodes(table):
    """The nodes of paths; row 0 stands in for steps past the end of a path."""
    return jnp.maximum(table, 0)


@op("hierarchical_sigmoid_of_rows", inputs="X Rows PathTable PathCode Bias?", outputs="Out PreOut", grad=None)
def hierarchical_sigmoid_of_rows(x, rows, table, code, bias, *, height=0):
    """hierarchical_sigmoid of the rows of its weight for its paths."""
    nodes, bits = path_of(None, table, code, 0, height)
    return path_costs(x, jnp.where((nodes < height)[..., None], rows, 0.0), bias, nodes, bits)


@op(
    "hierarchical_sigmoid_of_rows_grad",
    inputs="X Rows PathTable PathCode Bias? PreOut Out@GRAD",
    outputs="X@GRAD Weight@GRAD Bias@GRAD",
    grad=None,
    sparse_outputs=_sparse,
)
def hierarchical_sigmoid_of_rows_grad(x, rows, table, code, bias, costs, out_grad, *, height=0):
    """The derivative at the nodes of the paths; ``height`` is the number of rows of the weight."""
    nodes, bits = path_of(None, table, code, 0, height)
    slopes = path_slopes(costs, bits, nodes, height, out_grad)
    return linear_grads(x, rows, bias, nodes, slopes, height, is_sparse=True)
