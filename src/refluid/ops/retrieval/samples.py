"""Ops on samples: those with a tag (filter_by_instag), and attention between samples by their ranks."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.packing import pick_pieces, require_single_level


def _infer_filtered(inputs: Described, attrs: dict[str, Any]) -> Described:
    """Real Fluid declares two columns for IndexMap, which has three."""
    x = inputs["Ins"][0]
    return {
        "Out": [ShapeDtype((-1, *x.shape[1:]), x.dtype, lod_level=1)],
        "LossWeight": [ShapeDtype((-1, 1), jnp.dtype(jnp.float32), lod_level=1)],
        "IndexMap": [ShapeDtype((-1, 2), jnp.dtype(jnp.int64), lod_level=1)],
    }


@op(
    "filter_by_instag",
    inputs="Ins Ins_tag Filter_tag",
    outputs="Out LossWeight IndexMap",
    differentiable="Ins",
    lod="aware",
    infer=_infer_filtered,
    finds_rows=True,
)
def filter_by_instag(ins, tags, wanted, *, is_lod=True, out_val_if_empty=0):
    """The samples, rows or sequences, that have one of the wanted tags, or one row of a constant if none has.

    IndexMap holds, for each of them, where it begins in Out, where it began in Ins, and how many rows it has.
    """
    tags = require_single_level(tags, "Ins_tag")
    rows = plain(ins)
    starts, lengths = _samples(ins, is_lod)
    if starts.shape[0] != tags.sequences:
        raise ValueError(f"Ins has {starts.shape[0]} samples, but Ins_tag has tags of {tags.sequences}")
    fits = (tags.data.reshape(-1, 1) == plain(wanted).reshape(-1)).any(1)
    kept = jnp.zeros(tags.sequences, bool).at[tags.owners()].max(fits, mode="drop")
    order = jnp.argsort(~kept, stable=True)
    count = kept.sum(dtype=jnp.int32)
    lengths = jnp.where(kept[order], lengths[order], 0)
    out, offsets = pick_pieces(rows, starts[order], lengths, rows.shape[0])
    nothing = count == 0
    is_first = (jnp.arange(rows.shape[0]) == 0).reshape(-1, *(1,) * (rows.ndim - 1))
    out = jnp.where(nothing & is_first, jnp.asarray(out_val_if_empty, rows.dtype), out)
    known = jnp.stack([jnp.int32(0), jnp.maximum(count, 1)])
    offsets = jnp.where(nothing, jnp.minimum(jnp.arange(offsets.shape[0], dtype=jnp.int32), 1), offsets)
    each = jnp.minimum(jnp.arange(offsets.shape[0], dtype=jnp.int32), known[1])
    weights = jnp.broadcast_to(jnp.where(nothing, 0, 1).astype(jnp.float32), (lengths.shape[0], 1))
    index = jnp.stack([offsets[:-1], starts[order], lengths], 1).astype(jnp.int64)
    index = jnp.where(nothing, jnp.asarray([0, 1, 1]), index)
    longest = ins.longest if isinstance(ins, Ragged) and is_lod else 1
    return (
        Ragged(out, (known, offsets), max(longest, 1), hidden=1),
        Ragged(weights, (known, each), 1, hidden=1),
        Ragged(index, (known, each), 1, hidden=1),
    )


def _samples(ins: Any, is_lod: bool) -> tuple[Any, Any]:
    """Where each sample begins, and its number of rows."""
    if is_lod:
        ins = require_single_level(ins, "Ins")
        return ins.offsets[-1][:-1], ins.lengths
    count = ins.shape[0]
    return jnp.arange(count, dtype=jnp.int32), jnp.ones(count, jnp.int32)


@op("rank_attention", inputs="X RankOffset RankParam", outputs="Out", differentiable="RankParam", lod=None)
def rank_attention(x, ranks, weight, *, MaxRank=3):
    """For each sample the sum, over the samples shown with it, of their rows times the matrix for both ranks.

    A row of RankOffset holds the rank of the sample, counted from 1, and pairs of the rank and the row number of the
    samples that it was shown with. A rank that is not positive means that there is none.
    """
    if ranks.shape != (x.shape[0], 2 * MaxRank + 1) or weight.shape[0] != MaxRank * MaxRank * x.shape[1]:
        raise ValueError(
            f"with MaxRank {MaxRank}, RankOffset must have the shape {[x.shape[0], 2 * MaxRank + 1]} and RankParam "
            f"{MaxRank * MaxRank * x.shape[1]} rows, not {list(ranks.shape)} and {weight.shape[0]}"
        )
    matrices = weight.reshape(MaxRank, MaxRank, x.shape[1], weight.shape[1])
    own, others, places = ranks[:, 0] - 1, ranks[:, 1::2] - 1, ranks[:, 2::2]
    exists = (own[:, None] >= 0) & (others >= 0)
    rows = jnp.where(exists[..., None], x[jnp.where(exists, places, 0)], 0)
    used = matrices[jnp.where(exists, own[:, None], 0), jnp.where(exists, others, 0)]
    return jnp.einsum("nkd,nkdo->no", rows, used)
