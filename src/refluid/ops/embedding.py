"""Embedding tables: looking rows up, their dense or sparse gradients, and the ops on SelectedRows themselves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid.ops.checks import require_in_range
from refluid.ops.registry import op
from refluid.ops.values import SelectedRows

_NO_PADDING = -1


def _sparse_table(attrs: dict[str, Any]) -> set[str]:
    return {"W@GRAD"} if attrs.get("is_sparse") else set()


@op("lookup_table", inputs="Ids W", outputs="Out", differentiable="W")
def lookup_table(ids, w, *, padding_idx=_NO_PADDING, is_sparse=False):
    """Rows of w by ids of shape [..., 1]; ``padding_idx`` gives zeros."""
    if ids.shape[-1:] != (1,):
        raise ValueError(f"the last dim of Ids must be 1, but its shape is {list(ids.shape)}")
    return _look_up(ids, w, padding_idx).reshape(*ids.shape[:-1], *w.shape[1:])


@op("lookup_table_v2", inputs="Ids W", outputs="Out", differentiable="W")
def lookup_table_v2(ids, w, *, padding_idx=_NO_PADDING, is_sparse=False):
    """Rows of w by ids of any shape; ``padding_idx`` gives zeros."""
    return _look_up(ids, w, padding_idx)


def _look_up(ids, w, padding_idx):
    require_in_range(ids, w.shape[0], slot="Ids", ignore=None if padding_idx == _NO_PADDING else padding_idx)
    found = w.at[ids].get(mode="clip")
    if padding_idx == _NO_PADDING:
        return found
    return jnp.where((ids == padding_idx)[..., None], 0.0, found)


@op("lookup_table_grad", inputs="Ids W Out@GRAD", outputs="W@GRAD", grad=None, lod=None, sparse_outputs=_sparse_table)
@op(
    "lookup_table_v2_grad", inputs="Ids W Out@GRAD", outputs="W@GRAD", grad=None, lod=None, sparse_outputs=_sparse_table
)
def lookup_table_grad(ids, w, out_grad, *, padding_idx=_NO_PADDING, is_sparse=False):
    """dout at the rows that were looked up: SelectedRows with a row for every id, or all of w's rows.

    Only the dense form leaves out ``padding_idx``, in Fluid too.
    """
    rows = ids.reshape(-1)
    values = out_grad.reshape(rows.shape[0], *w.shape[1:])
    if is_sparse:
        return SelectedRows(rows, values, w.shape[0])
    if padding_idx != _NO_PADDING:
        rows = jnp.where(rows == padding_idx, w.shape[0], rows)
    return SelectedRows(rows, values, w.shape[0]).to_dense()


@op("lookup_table_dequant", inputs="Ids W", outputs="Out", grad=None)
def lookup_table_dequant(ids, w, *, padding_idx=_NO_PADDING):
    """Rows of bytes, four packed in a float, scaled between the row's smallest and largest value in front of them."""
    found = lookup_table(ids, w, padding_idx=padding_idx)
    smallest, largest, packed = found[..., 0:1], found[..., 1:2], found[..., 2:]
    quantised = jax.lax.bitcast_convert_type(packed, jnp.uint8).reshape(*packed.shape[:-1], -1)
    return smallest + (largest - smallest) / 256 * quantised.astype(w.dtype)


@op(
    "merge_selected_rows",
    inputs="X",
    outputs="Out",
    grad=None,
    sparse_outputs=lambda attrs: {"Out"},
)
def merge_selected_rows(x):
    """Each row once, in order. Places that become free hold no row and zeros: shapes must not depend on values."""
    return x.merged() if isinstance(x, SelectedRows) else x


@op("get_tensor_from_selected_rows", inputs="X", outputs="Out", grad=None)
def get_tensor_from_selected_rows(x):
    """The values of the rows there are, as a tensor."""
    return x.values if isinstance(x, SelectedRows) else x
