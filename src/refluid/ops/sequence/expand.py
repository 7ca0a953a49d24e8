"""Ops that repeat, join or scatter sequences. Every result has a bound on its rows, so that it can be compiled."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax.numpy as jnp

from refluid.ops.core.checks import require, require_in_range
from refluid.ops.core.infer import Described, ShapeDtype, described_like, levels_of
from refluid.ops.core.registry import op
from refluid.ops.core.shapes import require_as_many_rows
from refluid.ops.core.values import Ragged, last_at_most, plain
from refluid.ops.sequence.packing import count_of, inner_level, pick_pieces, require_sequences, require_single_level

_infer_expand = described_like("X", lambda x: x._replace(shape=(-1, *x.shape[1:])))


def _repeats_sequences(inputs: dict[str, list[Any]]) -> bool:
    """Rows are repeated as often as Y has items; sequences may have any length."""
    return levels_of(inputs["X"][0]) > 0


@op(
    "sequence_expand",
    inputs="X Y",
    outputs="Out",
    differentiable="X",
    lod="aware",
    infer=_infer_expand,
    finds_rows=_repeats_sequences,
)
def sequence_expand(x, y, *, ref_level=-1):
    """Repeats row or sequence i of x once for each item of sequence i of y's level ``ref_level``."""
    y = require_sequences(y, "Y")
    if not -1 <= ref_level < y.levels:
        raise ValueError(f"ref_level {ref_level} is not a level of Y, which has {y.levels}")
    level = y.offsets[y.hidden + ref_level] if ref_level >= 0 else y.offsets[-1]
    last = ref_level in (-1, y.levels - 1)
    items = y.shape[0] if last else y.offsets[y.hidden + ref_level + 1].shape[0] - 1
    owner = jnp.clip(last_at_most(level, jnp.arange(items)), 0, max(level.shape[0] - 2, 0))
    owner = owner.astype(jnp.int32)
    count = level[-1:].astype(jnp.int32)
    known = jnp.concatenate([jnp.zeros(1, jnp.int32), count])  # how many of the items are real
    real = jnp.arange(items, dtype=jnp.int32) < count
    if not isinstance(x, Ragged) or not x.levels:
        _require_as_many_rows(x, y, ref_level if ref_level < 0 else y.hidden + ref_level)
        rows, _ = pick_pieces(plain(x), owner, real.astype(jnp.int32), items)
        return Ragged(rows, (known,), items, hidden=1)
    if x.levels > 1:
        raise ValueError(f"X may have one LoD level, not {x.levels}")
    _require_alike(count_of(x), count_of(y, ref_level if ref_level < 0 else y.hidden + ref_level))
    # Only y determines how many sequences result, so a hidden level counts them.
    lengths = jnp.where(real, x.lengths[owner], 0)
    bound = max(x.longest, 1) * items
    rows, offsets = pick_pieces(x.data, x.offsets[-1][owner], lengths, bound)
    return Ragged(rows, (known, offsets), x.longest, hidden=1)


def _require_as_many_rows(x: Any, y: Ragged, level: int = -1) -> None:
    _require_alike(x.rows if isinstance(x, Ragged) else x.shape[0], count_of(y, level), "rows")


def _require_alike(given: Any, wanted: Any, what: str = "sequences") -> None:
    """Compares counts immediately if they are known, or at run time if sequences are padded."""
    if isinstance(given, int) and isinstance(wanted, int):
        if given != wanted:
            raise ValueError(f"X has {given} {what} for the {wanted} sequences of Y")
        return
    require(given == wanted, f"X must have as many {what} as Y has sequences")


_infer_expand_as = described_like("X", lambda x: ShapeDtype((-1, *x.shape[1:]), x.dtype, lod_level=1))


@op("sequence_expand_as", inputs="X Y", outputs="Out", differentiable="X", lod="aware", infer=_infer_expand_as)
def sequence_expand_as(x, y):
    """Repeats row i of x once for each row of sequence i of y."""
    y = require_single_level(y, "Y")
    _require_as_many_rows(x, y)
    rows, _ = pick_pieces(plain(x), jnp.minimum(y.owners(), y.sequences - 1), y.real().astype(jnp.int32), y.shape[0])
    return Ragged(rows, y.offsets[-1:], y.longest)


@op("sequence_concat", inputs="X*", outputs="Out", lod="aware")
def sequence_concat(xs):
    """The first sequences of all xs concatenated, then the second ones, and so on."""
    xs = [require_single_level(x, "X") for x in xs]
    if len({x.sequences for x in xs}) > 1:
        raise ValueError(f"the inputs have different numbers of sequences: {[x.sequences for x in xs]}")
    stacked = jnp.concatenate([x.data for x in xs])
    firsts = [sum(x.shape[0] for x in xs[:i]) for i in range(len(xs))]
    starts = jnp.stack([x.offsets[-1][:-1] + first for x, first in zip(xs, firsts, strict=True)], 1)
    lengths = jnp.stack([x.lengths for x in xs], 1)
    rows, offsets = pick_pieces(stacked, starts.reshape(-1), lengths.reshape(-1), stacked.shape[0])
    return inner_level(xs[0], rows, offsets[:: len(xs)], sum(x.longest for x in xs))


@op("sequence_scatter", inputs="X Ids Updates", outputs="Out", differentiable="X Updates", lod="aware")
def sequence_scatter(x, ids, updates):
    """Row i of x with the updates of sequence i added in the columns that Ids names."""
    ids = require_sequences(ids, "Ids")
    rows = plain(x)
    require_in_range(ids.data, rows.shape[1], slot="Ids")
    added = rows.at[ids.owners(), ids.data.reshape(-1)].add(plain(updates).reshape(-1), mode="drop")
    return x.with_data(added) if isinstance(x, Ragged) else added


@op("lod_reset", inputs="X Y?", outputs="Out", differentiable="X", lod="aware")
def lod_reset(x, y=None, *, target_lod=(), append=False):
    """The rows of x with new sequences: those of Y, or those given by the offsets in Y or in ``target_lod``."""
    rows = plain(x)
    if isinstance(y, Ragged) and y.levels:
        _require_ends_at(y.rows, x)
        return Ragged(rows, y.offsets, y.longest, y.hidden)
    if y is not None:
        offsets, longest = plain(y).reshape(-1).astype(jnp.int32), rows.shape[0]
    elif len(target_lod) > 1:
        offsets = jnp.asarray(target_lod, jnp.int32)
        longest = max(b - a for a, b in pairwise(target_lod))
    else:
        raise ValueError("there must be a Y, or target_lod with at least two offsets")
    _require_ends_at(offsets[-1], x)
    require((offsets[0] == 0) & (offsets[1:] >= offsets[:-1]), "the offsets must begin with 0 and not go down")
    before = x.offsets if append and isinstance(x, Ragged) and x.levels else ()
    if before:
        require(before[-1][-1] == offsets.shape[0] - 1, "the new level must have as many sequences as X has rows")
    return Ragged(rows, (*before, offsets), max(longest, 1))


def _require_ends_at(last: Any, x: Any) -> None:
    rows = x.rows if isinstance(x, Ragged) else x.shape[0]
    require(last == rows, "the last offset must be the number of rows of X")


def _infer_windows(inputs: Described, attrs: dict[str, Any]) -> Described:
    """Fluid declares only one row per image."""
    x, (height, width) = inputs["X"][0], attrs["kernels"]
    return {"Out": [ShapeDtype((x.shape[0], x.shape[1] * height * width), x.dtype, lod_level=1)]}


def _leaves_windows_out(inputs: dict[str, list[Any]]) -> bool:
    """Sizes of images say which windows count."""
    return bool(inputs.get("Y"))


@op(
    "im2sequence",
    inputs="X Y?",
    outputs="Out",
    differentiable="X",
    lod="aware",
    infer=_infer_windows,
    finds_rows=_leaves_windows_out,
)
def im2sequence(x, y=None, *, kernels, strides=(1, 1), paddings=(0, 0, 0, 0), out_stride=(1, 1)):
    """Each image as a sequence of its windows, from left to right and top to bottom.

    Y holds the heights and widths that images had before they were shrunk by ``out_stride``; what is to the right of
    and below an image of that size is left out.
    """
    top, left, bottom, right = paddings
    images = jnp.pad(plain(x), [(0, 0), (0, 0), (top, bottom), (left, right)])
    (height, width), (down, across) = kernels, strides
    count, _, high, wide = images.shape
    rows, columns = (high - height) // down + 1, (wide - width) // across + 1
    windows = jnp.stack(
        [
            images[:, :, i : i + (rows - 1) * down + 1 : down, j : j + (columns - 1) * across + 1 : across]
            for i in range(height)
            for j in range(width)
        ],
        -1,
    )  # [image, channel, row, column, place in window]
    packed = jnp.moveaxis(windows, 1, 3).reshape(count * rows * columns, -1)
    if y is not None:
        require_as_many_rows(X=images, Y=y)
        sizes = -(-plain(y).astype(jnp.int32) // jnp.asarray(out_stride, jnp.int32))
        lower = (sizes[:, 0] + top + bottom - height) // down + 1
        wider = (sizes[:, 1] + left + right - width) // across + 1
        require((lower <= rows) & (wider <= columns), "Y names an image that is larger than X")
        first = jnp.arange(count)[:, None] * (rows * columns) + jnp.arange(rows) * columns
        lengths = jnp.where(jnp.arange(rows) < lower[:, None], wider[:, None], 0)
        kept, offsets = pick_pieces(packed, first.reshape(-1), lengths.reshape(-1), packed.shape[0])
        return Ragged(kept, (offsets[::rows],), rows * columns)
    return Ragged(packed, (jnp.arange(count + 1, dtype=jnp.int32) * (rows * columns),), rows * columns)
