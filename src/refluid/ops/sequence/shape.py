"""Ops that split sequences differently, reverse them, remove rows, or pad them to one length and back."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.checks import require, require_in_range
from refluid.ops.core.dtypes import numpy_dtype
from refluid.ops.core.infer import Described, ShapeDtype, described_like
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.packing import (
    column,
    inner_level,
    offsets_of,
    pick_pieces,
    require_sequences,
    require_single_level,
    rows_per_sequence,
    take_rows,
)


def _infer_pad(inputs: Described, attrs: dict[str, Any]) -> Described:
    x = inputs["X"][0]
    if len(x.shape) < 2:
        raise ValueError(f"X needs at least 2 dims, but has shape {list(x.shape)}")
    length = abs(attrs.get("padded_length", -1))  # Fluid declares 1 if it is unknown
    lengths = ShapeDtype((-1,), np.dtype(np.int64))
    return {"Out": [ShapeDtype((-1, length, *x.shape[1:]), x.dtype)], "Length": [lengths]}


def _pads_to_longest(attrs: dict[str, Any], connected: frozenset[str]) -> bool:
    """The longest sequence determines the shape, which must be exact because later ops may compare it with others."""
    return attrs.get("padded_length", -1) == -1


@op(
    "sequence_pad",
    inputs="X PadValue",
    outputs="Out Length",
    differentiable="X",
    lod="aware",
    infer=_infer_pad,
    host=_pads_to_longest,
)
def sequence_pad(x, pad_value, *, padded_length=-1):
    """Sequences as [sequences, length, ...] with ``pad_value`` after their ends, and their lengths."""
    x = require_single_level(x, "X")
    length = int(np.max(np.asarray(x.lengths), initial=0)) if padded_length == -1 else padded_length
    require(x.lengths <= length, f"a sequence of X is longer than padded_length {length}")
    padded = Ragged(x.data, x.offsets, length).to_padded()
    inside = (jnp.arange(length) < x.lengths[:, None]).reshape(x.sequences, length, *(1,) * (x.ndim - 1))
    padded = jnp.where(inside, padded, plain(pad_value).astype(x.dtype))
    return rows_per_sequence(x, padded), rows_per_sequence(x, x.lengths.astype(jnp.int64))


@op("sequence_pad_grad", inputs="X PadValue? Out@GRAD", outputs="X@GRAD", grad=None, lod="aware")
def sequence_pad_grad(x, pad_value, out_grad, *, padded_length=-1):
    """The gradient of each row, taken from its place in the padded tensor."""
    owners, out_grad = jnp.minimum(x.owners(), max(x.sequences - 1, 0)), plain(out_grad)
    taken = out_grad[owners, jnp.clip(x.positions(), 0, out_grad.shape[1] - 1)]
    return x.with_data(jnp.where(column(x.real(), taken), taken, 0))


def _infer_unpad(inputs: Described, attrs: dict[str, Any]) -> Described:
    x = inputs["X"][0]
    return {"Out": [ShapeDtype((-1, *x.shape[2:]) if len(x.shape) > 2 else (-1, 1), x.dtype, lod_level=1)]}


@op(
    "sequence_unpad",
    inputs="X Length",
    outputs="Out",
    differentiable="X",
    lod="aware",
    infer=_infer_unpad,
    finds_rows=True,
)
def sequence_unpad(x, length):
    """The first ``length`` elements of each row of x, as sequences."""
    model = x if isinstance(x, Ragged) else length
    x, length = plain(x), plain(length).reshape(-1)
    count, longest = x.shape[:2]
    if length.shape[0] != count:
        raise ValueError(f"there are {length.shape[0]} numbers in Length for the {count} rows of X")
    require_in_range(length, longest + 1, slot="Length")
    length = length.astype(jnp.int32)
    if isinstance(model, Ragged):  # padding rows become empty sequences; a hidden level counts the real ones
        length = jnp.where(model.real(), length, 0)
    starts = jnp.arange(count, dtype=jnp.int32) * longest
    flat = x.reshape(count * longest, *(x.shape[2:] or (1,)))
    rows, offsets = pick_pieces(flat, starts, length, count * longest)
    outer = model.offsets if isinstance(model, Ragged) else ()
    return Ragged(rows, (*outer, offsets), longest, hidden=len(outer))


_infer_slice = described_like("X", lambda x: x._replace(shape=(-1, *x.shape[1:])))


@op(
    "sequence_slice",
    inputs="X Offset Length",
    outputs="Out",
    differentiable="X",
    lod="aware",
    infer=_infer_slice,
    finds_rows=True,
)
def sequence_slice(x, offset, length):
    """The ``length`` rows of each sequence from ``offset`` on."""
    x = require_single_level(x, "X")
    begin, lengths = (_for_each(x, value, slot) for value, slot in ((offset, "Offset"), (length, "Length")))
    fits = (begin >= 0) & (lengths >= 0) & (begin + lengths <= x.lengths)
    require(fits, "Offset and Length reach beyond a sequence of X")
    rows, offsets = pick_pieces(x.data, x.offsets[-1][:-1] + begin, lengths, x.shape[0])
    return inner_level(x, rows, offsets, x.longest)


def _for_each(x: Ragged, numbers: Any, slot: str) -> Any:
    """A number for each sequence of x, padding included."""
    values = plain(numbers).reshape(-1).astype(jnp.int32)
    if values.shape[0] > x.sequences or (values.shape[0] < x.sequences and len(x.offsets) == 1):
        raise ValueError(f"there are {values.shape[0]} numbers in {slot} for the {x.sequences} sequences of X")
    if isinstance(numbers, Ragged):
        values = jnp.where(numbers.real(), values, 0)
    return jnp.pad(values, (0, x.sequences - values.shape[0]))


@op("sequence_reshape", inputs="X", outputs="Out", lod="aware")
def sequence_reshape(x, *, new_dim):
    """The elements of each sequence in rows of ``new_dim``."""
    x = require_sequences(x, "X")
    count, width = x.shape
    require(x.lengths * width % new_dim == 0, f"a sequence of X does not fill rows of new_dim {new_dim}")
    missing = -(count * width) % new_dim  # padding may end within a row; real rows do not
    flat = jnp.pad(x.data.reshape(-1), (0, missing))
    offsets = (x.offsets[-1] * width // new_dim).astype(jnp.int32)
    return inner_level(x, flat.reshape(-1, new_dim), offsets, -(-x.longest * width // new_dim))


@op("sequence_reverse", inputs="X", outputs="Y", lod="aware")
def sequence_reverse(x):
    """Each sequence in reverse."""
    x = require_sequences(x, "X")
    owners = jnp.minimum(x.owners(), max(x.sequences - 1, 0))
    places = x.offsets[-1][owners] + x.lengths[owners] - 1 - x.positions()
    return x.with_data(take_rows(x.data, places, x.real()))


@op("sequence_enumerate", inputs="X", outputs="Out", grad=None, lod="aware")
def sequence_enumerate(x, *, win_size, pad_value=0):
    """For each id, the window of ``win_size`` ids of its sequence that starts there."""
    x = require_sequences(x, "X")
    ids = x.data.reshape(-1)
    owners = jnp.minimum(x.owners(), max(x.sequences - 1, 0))
    ahead = jnp.arange(win_size, dtype=jnp.int32)
    inside = (x.positions()[:, None] + ahead < x.lengths[owners][:, None]) & x.real()[:, None]
    places = jnp.where(inside, jnp.arange(ids.shape[0], dtype=jnp.int32)[:, None] + ahead, 0)
    return x.with_data(jnp.where(inside, ids[places], jnp.asarray(pad_value, ids.dtype)))


@op("sequence_erase", inputs="X", outputs="Out", grad=None, lod="aware", finds_rows=True)
def sequence_erase(x, *, tokens=()):
    """The sequences without the given ids."""
    x = require_sequences(x, "X")
    erased = jnp.isin(x.data.reshape(x.shape[0]), jnp.asarray(list(tokens), x.dtype))
    return keep_rows(x, x.real() & ~erased)


def keep_rows(x: Ragged, kept: Any) -> Ragged:
    """The sequences with only the ``kept`` rows."""
    before = offsets_of(kept.astype(jnp.int32))  # how many rows are kept before each one
    rows = jnp.zeros_like(x.data).at[jnp.where(kept, before[:-1], x.shape[0])].set(x.data, mode="drop")
    return inner_level(x, rows, before[x.offsets[-1]], x.longest)


def _infer_mask(inputs: Described, attrs: dict[str, Any]) -> Described:
    longest = attrs.get("maxlen", -1)
    known = longest if longest > 0 and not inputs.get("MaxLenTensor") else -1
    return {"Y": [ShapeDtype((*inputs["X"][0].shape, known), numpy_dtype(attrs.get("out_dtype", 3)))]}


def _masks_to_longest(attrs: dict[str, Any], connected: frozenset[str]) -> bool:
    """The lengths determine the shape, unless another input or an attribute does."""
    return "MaxLenTensor" not in connected and attrs.get("maxlen", -1) <= 0


@op(
    "sequence_mask",
    inputs="X MaxLenTensor?",
    outputs="Y",
    grad=None,
    lod=None,
    infer=_infer_mask,
    static="MaxLenTensor",
    host=_masks_to_longest,
)
def sequence_mask(x, longest_tensor=None, *, maxlen=-1, out_dtype=3):
    """For each length, that many ones followed by zeros."""
    if longest_tensor is not None:
        maxlen = int(np.ravel(longest_tensor)[0])
    elif maxlen <= 0:
        maxlen = int(np.max(np.asarray(x), initial=0))
    return (jnp.arange(maxlen) < x[..., None]).astype(numpy_dtype(out_dtype))
