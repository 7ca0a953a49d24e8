"""Pooling, convolution and expansion of sequences together with what follows them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.fused.products import fc
from refluid.ops.nn.embedding import cvm, lookup_table, lookup_table_grad
from refluid.ops.sequence.expand import sequence_expand_as
from refluid.ops.sequence.packing import (
    column,
    count_of,
    inner_level,
    require_sequences,
    require_single_level,
    rows_per_sequence,
)
from refluid.ops.sequence.pool import sequence_conv, sequence_pool

_POOLS = ("SUM", "AVERAGE", "SQRT")


@op("fusion_seqpool_concat", inputs="X*", outputs="Out", grad=None, lod="aware")
def fusion_seqpool_concat(xs, *, pooltype="SUM", axis=1):
    """For each sequence, what sequence_pool makes of it in each of the inputs, side by side."""
    return _side_by_side(xs[0], [plain(_pooled(x, pooltype, axis)) for x in xs])


@op("fusion_seqpool_cvm_concat", inputs="X* CVM", outputs="Out", grad=None, lod="aware")
def fusion_seqpool_cvm_concat(xs, show_click, *, pooltype="SUM", use_cvm=True, axis=1):
    """The same, with the logarithms of shows and clicks in the first two columns of each input, as `cvm` has them."""
    return _side_by_side(xs[0], [cvm(plain(_pooled(x, pooltype, axis)), show_click, use_cvm=use_cvm) for x in xs])


def _pooled(x: Any, pooltype: str, axis: int) -> Any:
    if pooltype not in _POOLS or axis != 1:
        raise ValueError(f"pooltype must be SUM, AVERAGE or SQRT, and axis 1, not {pooltype} and {axis}")
    return sequence_pool(require_single_level(x, "X"), pooltype=pooltype)[0]


def _side_by_side(x: Ragged, pooled: list[Any]) -> Ragged:
    """Real Fluid makes every row a sequence."""
    each = jnp.minimum(jnp.arange(x.sequences + 1, dtype=jnp.int32), count_of(x))
    return inner_level(x, jnp.concatenate(pooled, 1), each, 1)


@op("fusion_seqconv_eltadd_relu", inputs="X Filter Bias", outputs="Out ColMat?", grad=None, lod="aware")
def fusion_seqconv_eltadd_relu(x, weight, bias, *, contextLength, contextStart=0, contextStride=1):
    """relu(sequence_conv(x) + bias)."""
    out = sequence_conv(
        x, None, weight, contextLength=contextLength, contextStart=contextStart, contextStride=contextStride
    )
    return out.with_data(jnp.maximum(out.data + bias.reshape(-1), 0)), None


@op("fusion_seqexpand_concat_fc", inputs="X* FCWeight FCBias?", outputs="Out FCOut?", grad=None, lod="aware")
def fusion_seqexpand_concat_fc(xs, weight, bias=None, *, fc_activation="identity"):
    """fc of the rows of the first input, each with the row of its sequence in the other inputs beside it."""
    first = require_single_level(xs[0], "X")
    others = [plain(sequence_expand_as(x, first)) for x in xs[1:]]
    joined = jnp.concatenate([first.data, *others], 1)
    return first.with_data(fc(joined, weight, bias, activation_type=fc_activation)), None


def _sparse_table(attrs: dict[str, Any]) -> set[str]:
    return {"W@GRAD"} if attrs.get("is_sparse") else set()


@op("fused_embedding_seq_pool", inputs="Ids W", outputs="Out", differentiable="W", lod="aware")
def fused_embedding_seq_pool(ids, w, *, combiner="sum", padding_idx=-1, is_sparse=False):
    """The sum of the rows that each sequence of ids looks up."""
    if combiner != "sum":
        raise ValueError(f"combiner must be sum, not {combiner}")
    ids = require_single_level(ids, "Ids")
    rows = ids.with_data(lookup_table(ids.data, w, padding_idx=padding_idx).reshape(ids.shape[0], -1))
    return rows_per_sequence(ids, plain(sequence_pool(rows, pooltype="SUM")[0]))


@op(
    "fused_embedding_seq_pool_grad",
    inputs="Ids W? Out@GRAD",
    outputs="W@GRAD",
    grad=None,
    lod="aware",
    sparse_outputs=_sparse_table,
)
def fused_embedding_seq_pool_grad(ids, w, out_grad, *, combiner="sum", padding_idx=-1, is_sparse=False, height=0):
    """Each id's row gets the gradient of its sequence."""
    ids = require_sequences(ids, "Ids")
    of_rows = plain(out_grad)[jnp.minimum(ids.owners(), max(ids.sequences - 1, 0))]
    real = jnp.where(column(ids.real(), of_rows), of_rows, 0)
    return lookup_table_grad(ids, w, real, padding_idx=padding_idx, is_sparse=is_sparse, height=height)
