"""chunk_eval: how many chunks, such as names in a text, a tagger found.

A label encodes a type of chunk and a kind of tag: label = type * kinds + kind; the label after the last one means "no
chunk". Every other row belongs to exactly one chunk, so a chunk is identified by where it begins and where the next
break is.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.packing import require_single_level

# For each scheme: the number of kinds of tags, and the kinds that begin a chunk, end one, or are a whole one.
_SCHEMES = {"IOB": (2, 0, -1, -1), "IOE": (2, -1, 1, -1), "IOBES": (4, 0, 2, 3), "plain": (1, -1, -1, -1)}


@op(
    "chunk_eval",
    inputs="Inference Label SeqLength?",
    outputs="Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks",
    grad=None,
    lod="aware",
)
def chunk_eval(inference, label, length=None, *, num_chunk_types, chunk_scheme="IOB", excluded_chunk_types=()):
    """Precision, recall and F1 of the chunks in Inference against those in Label, and the three counts behind them."""
    if chunk_scheme not in _SCHEMES:
        raise ValueError(f"chunk_scheme must be one of {', '.join(_SCHEMES)}, not {chunk_scheme!r}")
    found, known = _padded(inference, length, "Inference"), _padded(label, length, "Label")
    steps = max(found[0].shape[1], known[0].shape[1])
    begins, types, breaks = zip(
        *(_chunks(*tags, steps, chunk_scheme, num_chunk_types) for tags in (found, known)), strict=True
    )
    counted = [begin & ~_is_one_of(type, excluded_chunk_types) for begin, type in zip(begins, types, strict=True)]
    same = counted[0] & counted[1] & (types[0] == types[1]) & (breaks[0] == breaks[1])
    infer, of_label, correct = (jnp.sum(x, dtype=jnp.int64).reshape(1) for x in (*counted, same))
    precision, recall = _ratio(correct, infer), _ratio(correct, of_label)
    f1 = jnp.where(correct > 0, 2 * precision * recall / jnp.where(correct > 0, precision + recall, 1), 0)
    return precision, recall, f1, infer, of_label, correct


def _padded(tags, length, slot):
    if length is None:
        if not isinstance(tags, Ragged):
            raise ValueError(f"{slot} must be sequences (lod_level=1, fed as a LoDTensor), or come with SeqLength")
        tags = require_single_level(tags, slot)
        return tags.to_padded().reshape(tags.sequences, tags.longest), tags.lengths
    lengths = plain(length).reshape(-1)
    if isinstance(length, Ragged):
        lengths = jnp.where(length.real(), lengths, 0)
    return plain(tags).reshape(lengths.shape[0], -1), lengths


def _chunks(labels, lengths, steps, scheme, num_types):
    """For each place: whether a chunk begins there, its type, and where the next break is."""
    kinds, begin, end, single = _SCHEMES[scheme]
    within = jnp.arange(labels.shape[1]) < lengths[:, None]
    labels = jnp.where(within, labels, num_types * kinds)
    # An extra "no chunk" on either side delimits chunks at the beginning and at the end.
    labels = jnp.pad(labels, ((0, 0), (1, steps - labels.shape[1] + 1)), constant_values=num_types * kinds)
    tag, type = labels % kinds, labels // kinds
    in_chunk = type < num_types
    type = jnp.where(in_chunk, type, num_types)
    before, tag_before = type[:, :-1], tag[:, :-1]
    tag, type, in_chunk = tag[:, 1:], type[:, 1:], in_chunk[:, 1:]
    apart = (tag == begin) | (tag == single) | (tag_before == end) | (tag_before == single)
    breaks = (before != type) | apart
    places = jnp.where(breaks, jnp.arange(breaks.shape[1]), breaks.shape[1])
    next_break = lax.cummin(places, axis=1, reverse=True)
    return (in_chunk & breaks)[:, :-1], type[:, :-1], next_break[:, 1:]


def _is_one_of(types, some):
    return jnp.isin(types, jnp.asarray(list(some), types.dtype)) if len(some) else jnp.zeros(types.shape, bool)


def _ratio(part, whole):
    return jnp.where(whole > 0, part / jnp.maximum(whole, 1), 0).astype(jnp.float32)
