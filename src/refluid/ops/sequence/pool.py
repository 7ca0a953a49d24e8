"""Ops that look at each sequence as a whole: pooling, softmax, and convolutions along the sequence."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged
from refluid.ops.sequence.packing import column, per_sequence, require_sequences, require_single_level


@op("sequence_pool", inputs="X", outputs="Out MaxIndex", lod="aware")
def sequence_pool(x, *, pooltype="AVERAGE", pad_value=0.0):
    """One row for each sequence: the sum, mean, sum / sqrt(length), maximum, first or last of its rows."""
    x = require_sequences(x, "X")
    empty = column(x.lengths == 0, x)
    pad = jnp.asarray(pad_value, x.dtype)
    index = None
    if pooltype == "MAX":
        rows, index = _largest(x.data, x.offsets[-1])
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


_AT_ONCE = 8  # how many steps an iteration of the loop in `_largest` covers


@jax.custom_vjp
def _largest(data, offsets):
    """For each sequence and column the largest element, and the first row that holds it; -1 if there is none."""
    starts, lengths = offsets[:-1].astype(jnp.int32), jnp.diff(offsets).astype(jnp.int32)
    last = jnp.maximum(lengths - 1, 0)

    def rows_at(steps):
        # Reading the last row of a sequence twice changes nothing.
        places = starts[:, None] + jnp.minimum(steps, last[:, None])
        return data.at[jnp.clip(places, 0, max(data.shape[0] - 1, 0))].get(mode="promise_in_bounds")

    def look(carry):
        step, best, index = carry
        steps = step + jnp.arange(_AT_ONCE, dtype=jnp.int32)
        rows = rows_at(steps)
        for i in range(_AT_ONCE):
            larger = rows[:, i] > best
            best, index = jnp.where(larger, rows[:, i], best), jnp.where(larger, steps[i], index)
        return step + _AT_ONCE, best, index

    first = rows_at(jnp.zeros(1, jnp.int32))[:, 0]
    start = (jnp.zeros((), jnp.int32), first, jnp.zeros(first.shape, jnp.int32))
    # A loop over steps is four times faster on CPU than a maximum over padded sequences, which must be built first.
    _, best, index = lax.while_loop(lambda carry: carry[0] <= last.max(initial=0), look, start)
    return best, jnp.where(column(lengths == 0, data), -1, index + column(starts, data))


def _largest_forward(data, offsets):
    best, index = _largest(data, offsets)
    return (best, index), (Ragged(jnp.zeros((data.shape[0], 0), data.dtype), (offsets,), 0), index)


def _largest_backward(residuals, gradients):
    """Compares every row with the selected one: ten times faster on CPU than a scatter."""
    x, index = residuals
    owners = x.owners()
    mine = jnp.minimum(owners, max(x.sequences - 1, 0))
    places = jnp.arange(owners.shape[0], dtype=jnp.int32)
    is_it = (index[mine] == column(places, index)) & column(owners < x.sequences, index)
    return jnp.where(is_it, gradients[0][mine], 0), None


_largest.defvjp(_largest_forward, _largest_backward)


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


def _neighbours(x, distance, beyond=None):
    """For each row the one ``distance`` after it in its sequence.

    Where the sequence ends there are zeros, or the rows of ``beyond``: first those before a beginning, in order, then
    those after an end.
    """
    places = x.positions() + distance
    owners = jnp.minimum(x.owners(), max(x.sequences - 1, 0))
    inside = x.real() & (places >= 0) & (places < x.lengths[owners])
    rows = jnp.arange(x.shape[0], dtype=jnp.int32) + distance
    outside = 0
    if beyond is not None:
        data, before = beyond
        outside = data[jnp.clip(before + jnp.where(places < 0, places, places - x.lengths[owners]), 0, len(data) - 1)]
    return jnp.where(column(inside, x), x.data[jnp.where(inside, rows, 0)], outside)


@op("sequence_conv", inputs="X PaddingData? Filter", outputs="Out", differentiable="X PaddingData Filter", lod="aware")
def sequence_conv(x, padding_data, weight, *, contextLength, contextStart=0, contextStride=1, paddingTrainable=False):
    """The rows around each row, side by side, times the filter; beyond the ends of a sequence, zeros or PaddingData.

    differs: sequence-conv-start
    """
    x = require_sequences(x, "X")
    if contextStride != 1:
        raise ValueError("contextStride must be 1, as in Fluid")
    beyond = None
    if paddingTrainable:
        before, after = max(0, -contextStart), max(0, contextStart + contextLength - 1)
        if padding_data is None or padding_data.shape != (before + after, x.shape[1]):
            raise ValueError(f"PaddingData must have the shape {[before + after, x.shape[1]]}")
        beyond = padding_data, before
    window = [_neighbours(x, contextStart + i, beyond) for i in range(contextLength)]
    return x.with_data(jnp.concatenate(window, 1) @ weight)


@op("row_conv", inputs="X Filter", outputs="Out", lod="aware")
def row_conv(x, weight):
    """out[t] = sum_i x[t + i] * weight[i], column by column; takes sequences, or a batch [batch, length, columns]."""
    ahead = weight.shape[0]
    if isinstance(x, Ragged):
        x = require_single_level(x, "X")
        return x.with_data(sum(_neighbours(x, i) * weight[i] for i in range(ahead)))
    padded = jnp.pad(x, [(0, 0), (0, ahead - 1), (0, 0)])
    return sum(lax.slice_in_dim(padded, i, i + x.shape[1], axis=1) * weight[i] for i in range(ahead))
