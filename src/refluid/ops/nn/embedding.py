"""Embedding lookups, their dense or sparse gradients, and ops on SelectedRows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.infer import ShapeDtype, described_like
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in
from refluid.ops.core.values import Ragged, SelectedRows, plain
from refluid.ops.sequence.packing import outermost

_NO_PADDING = -1


def _sparse_table(attrs: dict[str, Any]) -> set[str]:
    return {"W@GRAD"} if attrs.get("is_sparse") else set()


_LOOKUP: dict[str, Any] = {
    "inputs": "Ids W",
    "outputs": "Out",
    "differentiable": "W",
    "row_wise": sequences_only_in("Ids"),
    "rows_of": "W",
}


@op("lookup_table", **_LOOKUP)
def lookup_table(ids, w, *, padding_idx=_NO_PADDING, is_sparse=False):
    """w[ids] for ids of shape [..., 1]; ``padding_idx`` gives zeros."""
    if ids.shape[-1:] != (1,):
        raise ValueError("the last dim of Ids must be 1; lookup_table_v2 (fluid.embedding) takes ids of any shape")
    return _look_up(ids, w, padding_idx).reshape(*ids.shape[:-1], *w.shape[1:])


@op("lookup_table_v2", **_LOOKUP)
def lookup_table_v2(ids, w, *, padding_idx=_NO_PADDING, is_sparse=False):
    """w[ids] for ids of any shape; ``padding_idx`` gives zeros."""
    return _look_up(ids, w, padding_idx)


def _look_up(ids, w, padding_idx):
    require_in_range(ids, w.shape[0], slot="Ids", ignore=None if padding_idx == _NO_PADDING else padding_idx)
    found = w.at[ids].get(mode="clip")
    if padding_idx == _NO_PADDING:
        return found
    return jnp.where((ids == padding_idx)[..., None], 0.0, found)


_LOOKUP_GRAD: dict[str, Any] = {
    "inputs": "Ids W? Out@GRAD",
    "outputs": "W@GRAD",
    "grad": None,
    "lod": "aware",
    "sparse_outputs": _sparse_table,
}


@op("lookup_table_grad", **_LOOKUP_GRAD)
@op("lookup_table_v2_grad", **_LOOKUP_GRAD)
def lookup_table_grad(ids, w, out_grad, *, padding_idx=_NO_PADDING, is_sparse=False, height=0):
    """dout at the rows looked up: SelectedRows with one row per id, or a dense gradient of w.

    Only the dense form skips ``padding_idx``, as in Fluid. ``height`` is the number of rows of a table on servers.
    """
    height = height if w is None else w.shape[0]
    out_grad = plain(out_grad)
    rows = _real_ids(ids, height).reshape(-1)
    values = out_grad.reshape(rows.shape[0], *(out_grad.shape[-1:] if w is None else w.shape[1:]))
    if is_sparse:
        return SelectedRows(rows, values, height)
    if padding_idx != _NO_PADDING:
        rows = jnp.where(rows == padding_idx, height, rows)
    return SelectedRows(rows, values, height).to_dense()


def _real_ids(ids, height):
    """The ids, with ``height`` (no row) for padding, so that optimizers do not count its rows as touched."""
    if not isinstance(ids, Ragged):
        return ids
    return ids.masked(height)


@op("lookup_table_dequant", inputs="Ids W", outputs="Out", grad=None, row_wise=sequences_only_in("Ids"))
def lookup_table_dequant(ids, w, *, padding_idx=_NO_PADDING):
    """min + (max - min) / 256 * q for rows of a min, a max and bytes q, packed four to a float."""
    found = lookup_table(ids, w, padding_idx=padding_idx)
    smallest, largest, packed = found[..., 0:1], found[..., 1:2], found[..., 2:]
    quantised = jax.lax.bitcast_convert_type(packed, jnp.uint8).reshape(*packed.shape[:-1], -1)
    return smallest + (largest - smallest) / 256 * quantised.astype(w.dtype)


@op(
    "merge_selected_rows",
    inputs="X",
    outputs="Out",
    grad=None,
    infer=described_like("X"),
    sparse_outputs=lambda attrs: {"Out"},
    slices="rows",
)
def merge_selected_rows(x):
    """x with each row once, in order. Freed entries hold no row and zeros, as shapes must not depend on values."""
    return x.merged() if isinstance(x, SelectedRows) else x


# The number of rows is unknown before the run; Fluid infers X's full height.
_as_high_as_x = described_like("X", lambda x: ShapeDtype(x.shape, x.dtype))


@op(
    "get_tensor_from_selected_rows",
    inputs="X",
    outputs="Out",
    grad=None,
    infer=_as_high_as_x,
    lod="aware",
    slices="rows",
    finds_rows=True,
)
def get_tensor_from_selected_rows(x):
    """The values of the stored rows, as a tensor; entries that hold no row become its padding."""
    if not isinstance(x, SelectedRows):
        return x
    held = x.rows < x.height
    before = jnp.cumsum(held, dtype=jnp.int32)
    rows = jnp.zeros_like(x.values).at[jnp.where(held, before - 1, held.size)].set(x.values, mode="drop")
    return Ragged(rows, (jnp.stack([jnp.int32(0), held.sum(dtype=jnp.int32)]),), held.size, hidden=1)


@op("cvm", inputs="X CVM", outputs="Y", differentiable="X", row_wise=True)
def cvm(x, show_click, *, use_cvm=True):
    """Replaces the first two columns by log(show + 1) and log(click + 1) - log(show + 1), or drops them."""
    if not use_cvm:
        return x[:, 2:]
    logarithms = jnp.log(x[:, :2] + 1)
    return jnp.concatenate([logarithms[:, :1], logarithms[:, 1:] - logarithms[:, :1], x[:, 2:]], 1)


@op("cvm_grad", inputs="X CVM Y@GRAD", outputs="X@GRAD", grad=None, lod="aware")
def cvm_grad(x, show_click, y_grad, *, use_cvm=True):
    """dy with the sample's shows and clicks in the first two columns: servers accumulate them like gradients.

    A sample is a sequence of x, or a row.
    """
    show_click, y_grad = plain(show_click), plain(y_grad)
    if isinstance(x, Ragged) and x.levels:
        show_click = show_click[jnp.minimum(outermost(x).owners(), show_click.shape[0] - 1)]
    grad = jnp.concatenate([show_click.astype(y_grad.dtype), y_grad[:, 2:] if use_cvm else y_grad], 1)
    return x.with_data(grad) if isinstance(x, Ragged) else grad


@op("add_position_encoding", inputs="X", outputs="Out", lod="aware")
def add_position_encoding(x, *, alpha=1.0, beta=1.0):
    """alpha * x + beta * encoding: sines, then cosines, of the position at decreasing frequencies.

    Positions count from the beginning of each sequence, or along dim 1 of a batch.
    """
    if isinstance(x, Ragged):
        if x.ndim != 2 or x.levels != 1 or x.shape[1] % 2:
            raise ValueError("X must have one level of sequences of rows, with an even number of columns")
        encoding = _position_encoding(x.positions(), x.shape[1], x.dtype)
        return x.with_data(alpha * x.data + beta * encoding)
    if x.ndim != 3 or x.shape[2] % 2:
        raise ValueError("X must have the shape [batch, length, size] with an even size, or be sequences of rows")
    return alpha * x + beta * _position_encoding(jnp.arange(x.shape[1]), x.shape[2], x.dtype)


def _position_encoding(positions, size, dtype):
    half = size // 2
    exponents = jnp.arange(half, dtype=dtype) / (half - 1) if half > 1 else jnp.ones(1, dtype)
    angles = positions.astype(dtype)[:, None] / jnp.power(jnp.asarray(10000.0, dtype), exponents)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], 1)
