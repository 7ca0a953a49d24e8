"""The edit distance of sequences of ids, and decoding of CTC frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ops.core.checks import require
from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.packing import count_of, outermost, require_sequences, require_single_level, rows_per_sequence
from refluid.ops.sequence.shape import keep_rows


def _infer_distance(inputs: Described, attrs: dict[str, Any]) -> Described:
    """Fluid declares Out with the shape of Refs."""
    shape = inputs["Refs"][0].shape
    return {"Out": [ShapeDtype(shape, np.dtype(np.float32))], "SequenceNum": [ShapeDtype((1,), np.dtype(np.int64))]}


@op(
    "edit_distance",
    inputs="Hyps Refs HypsLength? RefsLength?",
    outputs="SequenceNum Out",
    grad=None,
    lod="aware",
    infer=_infer_distance,
)
def edit_distance(hypotheses, references, hypotheses_length=None, references_length=None, *, normalized=False):
    """The number of insertions, deletions and substitutions that turn a hypothesis into its reference."""
    found, lengths, count = _padded_ids(hypotheses, hypotheses_length, "Hyps")
    wanted, wanted_lengths, _ = _padded_ids(references, references_length, "Refs")
    if found.shape[0] != wanted.shape[0]:
        raise ValueError(f"there are {found.shape[0]} sequences in Hyps and {wanted.shape[0]} in Refs")
    distances = jax.vmap(_distance)(found, lengths, wanted, wanted_lengths)
    if normalized:
        require((wanted_lengths > 0) | (jnp.arange(wanted.shape[0]) >= count), "a sequence of Refs is empty")
        distances = distances / jnp.maximum(wanted_lengths, 1).astype(jnp.float32)
    distances = distances.reshape(-1, 1)
    number = jnp.reshape(count, 1).astype(jnp.int64)
    return number, distances if hypotheses_length is not None else rows_per_sequence(hypotheses, distances)


def _padded_ids(ids: Any, lengths: Any, slot: str) -> tuple[Any, Any, Any]:
    """Ids as [sequences, longest], their lengths, and how many sequences are real."""
    if lengths is not None:
        rows = plain(ids)
        count = ids.rows if isinstance(ids, Ragged) else rows.shape[0]
        return rows.reshape(rows.shape[0], -1), plain(lengths).reshape(-1), count
    ids = require_single_level(ids, slot)
    return Ragged(ids.data.reshape(-1), ids.offsets, ids.longest).to_padded(), ids.lengths, count_of(ids)


def _distance(hypothesis: Any, length: Any, reference: Any, reference_length: Any) -> Any:
    """Computes the usual table row by row; entry j of a row is the distance to the first j ids of the reference."""
    columns = jnp.arange(reference.shape[0] + 1, dtype=jnp.float32)

    def next_row(row, step):
        number, one = step
        replaced = row[:-1] + (reference != one)
        best = jnp.minimum(row[1:] + 1, replaced)
        # Insertions run along the row: entry j is the minimum of best[k] + (j - k).
        best = jnp.concatenate([row[:1] + 1, best]) - columns
        new = jax.lax.cummin(best) + columns
        return jnp.where(number < length, new, row), None

    numbers = jnp.arange(hypothesis.shape[0])
    last, _ = jax.lax.scan(next_row, columns, (numbers, hypothesis))
    return last[reference_length]


@op("ctc_align", inputs="Input InputLength?", outputs="Output OutputLength", grad=None, lod="aware", finds_rows=True)
def ctc_align(ids, length=None, *, blank=0, merge_repeated=True, padding_value=0):
    """The sequences of frames without blanks and, with ``merge_repeated``, without repeated frames."""
    if length is not None:
        return _align_padded(plain(ids), plain(length).reshape(-1), blank, merge_repeated, padding_value)
    ids = outermost(require_sequences(ids, "Input"))
    flat = ids.data.reshape(-1)
    kept = ids.real() & (flat != blank)
    if merge_repeated:
        before = jnp.concatenate([flat[:1], flat[:-1]])
        kept &= (ids.positions() == 0) | (flat != before)
    rows = keep_rows(ids, kept)
    # If nothing is left, Fluid shows a single -1 that belongs to no sequence.
    nothing = jnp.full_like(rows.data, -1)
    return replace(rows, data=jnp.where(rows.rows == 0, nothing, rows.data), least=1), None


def _align_padded(ids: Any, lengths: Any, blank: int, merge_repeated: bool, padding_value: int) -> tuple[Any, Any]:
    count, longest = ids.shape
    kept = (jnp.arange(longest) < lengths[:, None]) & (ids != blank)
    if merge_repeated:
        kept = kept.at[:, 1:].set(kept[:, 1:] & (ids[:, 1:] != ids[:, :-1]))
    place = jnp.where(kept, jnp.cumsum(kept, 1) - 1, longest)
    rows = jnp.arange(count)[:, None]
    out = jnp.full_like(ids, padding_value).at[rows, place].set(ids, mode="drop")
    return out, kept.sum(1, dtype=ids.dtype).reshape(-1, 1)
