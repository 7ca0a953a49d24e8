"""Matching of two texts: a matrix of scores for each pair of sequences, and convolutions and poolings of such matrices.

A matrix, or an image of several channels, is a sequence of single numbers, row after row. ROW and COLUMN are sequences
that are as long as an image has rows and columns.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, last_at_most
from refluid.ops.sequence.packing import column, offsets_of, require_single_level, take_rows


def _numbers(x: ShapeDtype) -> ShapeDtype:
    return ShapeDtype((-1, 1), x.dtype, lod_level=1)


def _packed(images: Any, heights: Any, widths: Any, bound: int) -> tuple[Any, Any]:
    """Images [sequence, channel, row, column], of which only a part counts, as packed numbers and their offsets."""
    count, channels, high, wide = images.shape
    offsets = offsets_of(channels * heights * widths)
    places = jnp.arange(bound, dtype=jnp.int32)
    owner = jnp.clip(last_at_most(offsets, places), 0, max(count - 1, 0))
    width = jnp.maximum(widths[owner], 1)
    line, across = jnp.divmod(places - offsets[owner], width)
    channel, down = jnp.divmod(line, jnp.maximum(heights[owner], 1))
    flat = ((owner * channels + channel) * high + down) * wide + across
    return take_rows(images.reshape(-1, 1), flat, places < offsets[-1]), offsets


def _images(x: Ragged, heights: Any, widths: Any, shape: tuple[int, int, int]) -> tuple[Any, Any]:
    """The inverse: images [sequence, channel, row, column] with zeros around, and where they are inside."""
    channels, high, wide = shape
    channel, down, across = (jnp.arange(size, dtype=jnp.int32) for size in shape)
    tall, broad = heights[:, None, None, None], widths[:, None, None, None]
    local = (channel[:, None, None] * tall + down[:, None]) * broad + across
    inside = jnp.broadcast_to((down[:, None] < tall) & (across < broad), (x.sequences, channels, high, wide))
    flat = jnp.where(inside, x.offsets[-1][:-1][:, None, None, None] + local, 0)
    return jnp.where(inside, x.data.reshape(-1)[flat], 0), inside


@op(
    "match_matrix_tensor",
    inputs="X Y W",
    outputs="Out Tmp?",
    lod="aware",
    infer=lambda inputs, attrs: {"Out": [_numbers(inputs["X"][0])]},
    finds_rows=True,
)
def match_matrix_tensor(x, y, w, *, dim_t=1):
    """x^T w[:, t] y for each t, each row of a sequence of x and each row of the same sequence of y."""
    x, y = require_single_level(x, "X"), require_single_level(y, "Y")
    if w.shape != (x.shape[1], dim_t, y.shape[1]):
        raise ValueError(f"W must have the shape {[x.shape[1], dim_t, y.shape[1]]}, not {list(w.shape)}")
    if x.sequences != y.sequences:
        raise ValueError(f"X has {x.sequences} sequences, but Y has {y.sequences}")
    scores = jnp.einsum("sid,dte,sje->stij", x.to_padded(), w, y.to_padded())
    bound = dim_t * x.shape[0] * y.longest
    rows, offsets = _packed(scores, x.lengths, y.lengths, bound)
    return Ragged(rows, (*x.offsets[:-1], offsets), dim_t * x.longest * y.longest, x.hidden), None


@op(
    "var_conv_2d",
    inputs="X ROW COLUMN W",
    outputs="Out Col?",
    differentiable="X W",
    lod="aware",
    infer=lambda inputs, attrs: {"Out": [_numbers(inputs["X"][0])]},
    finds_rows=True,
)
def var_conv_2d(x, row, col, w, *, InputChannel, OutputChannel, KernelH, KernelW, StrideH=1, StrideW=1):
    """A convolution of images of different sizes, padded so that with stride 1 they keep their sizes."""
    x, row, col = require_single_level(x, "X"), require_single_level(row, "ROW"), require_single_level(col, "COLUMN")
    if w.shape != (OutputChannel, InputChannel * KernelH * KernelW):
        raise ValueError(
            f"W must have the shape {[OutputChannel, InputChannel * KernelH * KernelW]}, not {list(w.shape)}"
        )
    images, _ = _images(x, row.lengths, col.lengths, (InputChannel, row.longest, col.longest))
    out = lax.conv_general_dilated(
        images,
        w.reshape(OutputChannel, InputChannel, KernelH, KernelW),
        (StrideH, StrideW),
        [(size // 2, size - 1 - size // 2) for size in (KernelH, KernelW)],
    )
    heights, widths = -(-row.lengths // StrideH), -(-col.lengths // StrideW)
    rows, offsets = _packed(out, heights, widths, OutputChannel * (x.shape[0] // InputChannel))
    return Ragged(rows, (*x.offsets[:-1], offsets), out.shape[1] * out.shape[2] * out.shape[3], x.hidden), None


def _infer_tops(inputs: Described, attrs: dict[str, Any]) -> Described:
    width = attrs["channel_num"] * len(attrs["topks"])
    return {"Out": [ShapeDtype((-1, width), inputs["X"][0].dtype, lod_level=1)]}


@op(
    "sequence_topk_avg_pooling",
    inputs="X ROW COLUMN",
    outputs="Out pos?",
    differentiable="X",
    lod="aware",
    infer=_infer_tops,
)
def sequence_topk_avg_pooling(x, row, col, *, topks, channel_num):
    """For each row of an image, its channels and each k: the sum of the k largest numbers, or of all, divided by k."""
    x, row, col = require_single_level(x, "X"), require_single_level(row, "ROW"), require_single_level(col, "COLUMN")
    images, inside = _images(x, row.lengths, col.lengths, (channel_num, row.longest, col.longest))
    best = min(max(topks), col.longest)
    values, _ = lax.top_k(jnp.where(inside, images, -jnp.inf), best)
    sums = jnp.cumsum(jnp.where(jnp.isfinite(values), values, 0), -1)
    shares = jnp.stack([sums[..., min(k, best) - 1] / k for k in topks], -1)  # [sequence, channel, row, k]
    lines = jnp.swapaxes(shares, 1, 2).reshape(row.sequences, row.longest, -1)
    out = row.from_padded(lines)
    return out.with_data(jnp.where(column(row.real(), out), out.data, lax.stop_gradient(out.data))), None
