"""Ops that look at each sequence as a whole: pooling, softmax, and convolutions along the sequence."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.registry import op
from refluid.ops.sequence_rows import column, per_sequence, require_sequences, require_single_level
from refluid.ops.values import Ragged


@op("sequence_pool", inputs="X", outputs="Out MaxIndex", lod="aware")
def sequence_pool(x, *, pooltype="AVERAGE", pad_value=0.0):
    """One row for each sequence: the sum, mean, sum / sqrt(length), maximum, first or last of its rows."""
    x = require_sequences(x, "X")
    empty = column(x.lengths == 0, x)
    pad = jnp.asarray(pad_value, x.dtype)
    index = None
    if pooltype == "MAX":
        index = _places_of_largest(x)
        rows = jnp.take_along_axis(x.data, jnp.maximum(index, 0), 0)
    elif pooltype in ("FIRST", "LAST"):
        places = x.offsets[-1][:-1] if pooltype == "FIRST" else x.offsets[-1][1:] - 1
        rows = x.data[jnp.clip(places, 0, max(x.shape[0] - 1, 0))]
    elif pooltype in _SHARES:
        rows = _sums(x) / column(_SHARES[pooltype](jnp.maximum(x.lengths, 1).astype(x.dtype)), x)
    else:
        raise ValueError(f"pooltype must be SUM, AVERAGE, SQRT, MAX, FIRST or LAST, not {pooltype}")
    out = per_sequence(x, jnp.where(empty, pad, rows))
    return out, out.as_rows(index) if isinstance(out, Ragged) and index is not None else index


_SHARES = {"SUM": jnp.ones_like, "AVERAGE": lambda lengths: lengths, "SQRT": jnp.sqrt}


def _sums(x):
    # Padding rows belong to no sequence: their owner is out of range and dropped.
    return jax.ops.segment_sum(x.data, x.owners(), x.sequences, indices_are_sorted=True, mode="drop")


def _places_of_largest(x):
    """For each sequence and column, the row that holds the largest element, the first of several; -1 if it is empty."""
    lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.iinfo(x.dtype).min
    padded = lax.stop_gradient(x.to_padded(lowest))
    # A maximum and a minimum of places are vectorised on CPU where argmax is not: three times faster.
    places = jnp.arange(x.longest, dtype=jnp.int32).reshape(1, -1, *(1,) * (x.ndim - 1))
    attained = padded == padded.max(1, keepdims=True)
    position = jnp.where(attained, places, x.longest - 1).min(1)
    starts = x.offsets[-1][:-1].astype(jnp.int32)
    return jnp.where(column(x.lengths == 0, x), -1, position + column(starts, x))


@op("sequence_softmax", inputs="X", outputs="Out", lod="aware")
def sequence_softmax(x):
    """The softmax of each sequence of numbers."""
    x = require_sequences(x, "X")
    if x.data.size != x.shape[0]:
        raise ValueError(f"X must have one number a row, but has shape {list(x.shape)}")
    inside = jnp.arange(x.longest) < x.lengths[:, None]
    flat = x.with_data(x.data.reshape(-1))
    values = flat.to_padded()
    highest = jnp.max(jnp.where(inside, values, -jnp.inf), 1, keepdims=True, initial=-jnp.inf)
    shifted = jnp.where(inside, values - lax.stop_gradient(jnp.where(jnp.isfinite(highest), highest, 0)), 0)
    exponentials = jnp.where(inside, jnp.exp(shifted), 0)
    totals = exponentials.sum(1, keepdims=True)
    shares = flat.from_padded(exponentials / jnp.where(totals > 0, totals, 1))
    return x.with_data(jnp.where(x.real(), shares.data, lax.stop_gradient(shares.data[:1])).reshape(x.shape))


def _neighbours(x, distance):
    """For each row the one ``distance`` after it in its sequence; zeros where the sequence ends."""
    places = x.positions() + distance
    owners = jnp.minimum(x.owners(), max(x.sequences - 1, 0))
    inside = x.real() & (places >= 0) & (places < x.lengths[owners])
    rows = jnp.arange(x.shape[0], dtype=jnp.int32) + distance
    return jnp.where(column(inside, x), x.data[jnp.where(inside, rows, 0)], 0)


@op("sequence_conv", inputs="X PaddingData? Filter", outputs="Out", differentiable="X Filter", lod="aware")
def sequence_conv(x, padding_data, weight, *, contextLength, contextStart=0, contextStride=1, paddingTrainable=False):
    """The rows around each row, side by side, times the filter; beyond the ends of a sequence there are zeros."""
    x = require_sequences(x, "X")
    if paddingTrainable or contextStride != 1:
        raise ValueError("only contextStride=1 without trainable padding is supported, as by Fluid's layer")
    window = [_neighbours(x, contextStart + i) for i in range(contextLength)]
    return x.with_data(jnp.concatenate(window, 1) @ weight)


@op("row_conv", inputs="X Filter", outputs="Out", lod="aware")
def row_conv(x, weight):
    """Each row plus the weighted rows after it, column by column; sequences, or a batch [batch, length, columns]."""
    ahead = weight.shape[0]
    if isinstance(x, Ragged):
        x = require_single_level(x, "X")
        return x.with_data(sum(_neighbours(x, i) * weight[i] for i in range(ahead)))
    padded = jnp.pad(x, [(0, 0), (0, ahead - 1), (0, 0)])
    return sum(lax.slice_in_dim(padded, i, i + x.shape[1], axis=1) * weight[i] for i in range(ahead))
