"""Ops that gather and scatter by index tensors, and ops that create or convert index tensors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.dtypes import numpy_dtype
from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in
from refluid.ops.core.shapes import require_as_many_rows
from refluid.ops.core.static import integer
from refluid.ops.core.values import Ragged, plain


def _require_places(index: Any, shape: tuple[int, ...]) -> None:
    """Checks each column of ``index`` against the size of its axis."""
    if index.shape[-1] > len(shape):
        raise ValueError(f"Index has {index.shape[-1]} numbers a place, but X has only {len(shape)} dims")
    for i, bound in enumerate(shape[: index.shape[-1]]):
        require_in_range(index[..., i], bound, slot="Index", whole=False)


def _places(index: Any) -> tuple[Any, ...]:
    return tuple(index[..., i] for i in range(index.shape[-1]))


def _is_last(ids: Any, height: int) -> Any:
    """The mask of each id's last occurrence, which remains when later writes overwrite earlier ones."""
    order = jnp.arange(ids.shape[0], dtype=jnp.int32)
    last = jnp.full((height,), -1, jnp.int32).at[ids].max(order)
    return last[ids] == order


def _rows_like(mask: Any, rows: Any) -> Any:
    return mask.reshape(-1, *[1] * (rows.ndim - 1))


def _flat_ids(ids: Any, slot: str) -> Any:
    if ids.ndim > 2 or (ids.ndim == 2 and ids.shape[1] != 1):
        raise ValueError(f"{slot} must be a vector, not of shape {list(ids.shape)}")
    return ids.reshape(-1)


@op("gather", inputs="X Index", outputs="Out", differentiable="X", lod="aware")
def gather(x, index, *, overwrite=True):
    """The rows of x at Index."""
    ids = plain(index)
    require_in_range(ids, x.shape[0], slot="Index")
    rows = plain(x)[_flat_ids(ids, "Index")]
    return index.as_rows(rows) if isinstance(index, Ragged) else rows


@op("gather_grad", inputs="X Index Out@GRAD", outputs="X@GRAD", grad=None, lod="aware")
def gather_grad(x, index, grad, *, overwrite=True):
    """If a row was gathered repeatedly, its gradients add up, or with Fluid's ``overwrite`` the last one is kept."""
    ids, grad, height = _flat_ids(plain(index), "Index"), plain(grad), x.shape[0]
    if isinstance(index, Ragged):  # padding is no repetition
        ids = jnp.where(index.real(), ids, height)
    if overwrite:
        grad = jnp.where(_rows_like(_is_last(ids, height + 1), grad), grad, 0)
    gathered = jnp.zeros_like(plain(x)).at[ids].add(grad, mode="drop")
    return x.with_data(gathered) if isinstance(x, Ragged) else gathered


@op("gather_nd", inputs="X Index", outputs="Out", differentiable="X", lod=None, row_wise=sequences_only_in("Index"))
def gather_nd(x, index):
    """x at the positions in the rows of Index, which index the leading axes."""
    _require_places(index, x.shape)
    if not index.shape[-1]:  # every place is all of x
        return jnp.broadcast_to(x, (*index.shape[:-1], *x.shape))
    return x[_places(index)]


def _require_updates(updates: Any, shape: tuple[int, ...]) -> None:
    if updates.shape != shape:
        raise ValueError(f"Updates must have the shape {list(shape)}, not {list(updates.shape)}")


@op("scatter", inputs="X Ids Updates", outputs="Out", differentiable="X Updates", lod=None)
def scatter(x, ids, updates, *, overwrite=True):
    """x with each row in Ids replaced by its last update, or by the sum of its updates."""
    require_in_range(ids, x.shape[0], slot="Ids")
    ids = _flat_ids(ids, "Ids")
    _require_updates(updates, (*ids.shape, *x.shape[1:]))
    if overwrite:
        updates = jnp.where(_rows_like(_is_last(ids, x.shape[0]), updates), updates, 0)
    return x.at[ids].set(jnp.zeros((), x.dtype)).at[ids].add(updates)


@op("scatter_grad", inputs="X Ids Updates Out@GRAD", outputs="X@GRAD Updates@GRAD", grad=None, lod=None)
def scatter_grad(x, ids, updates, grad):
    """Fluid passes the whole gradient to X, replaced rows included, and to each update its row."""
    return grad, grad[_flat_ids(ids, "Ids")]


@op("scatter_nd_add", inputs="X Index Updates", outputs="Out", differentiable="X Updates", lod=None)
def scatter_nd_add(x, index, updates):
    """x plus the updates at the positions in the rows of Index."""
    if index.ndim < 2:
        raise ValueError("Index must have at least 2 dims")
    _require_places(index, x.shape)
    _require_updates(updates, (*index.shape[:-1], *x.shape[index.shape[-1] :]))
    if not index.shape[-1]:  # every update is added to all of x
        return x + updates.reshape(-1, *x.shape).sum(0)
    return x.at[_places(index)].add(updates)


@op("index_select", inputs="X Index", outputs="Out", differentiable="X", lod=None)
def index_select(x, index, *, dim=0):
    """The slices of x along ``dim`` at Index."""
    require_in_range(index, x.shape[dim], slot="Index")
    return jnp.take(x, index, axis=dim)


@op("index_sample", inputs="X Index", outputs="Out", differentiable="X", lod=None, row_wise=True)
def index_sample(x, index):
    """The elements of each row of x at the indices in the same row of Index."""
    require_in_range(index, x.shape[1], slot="Index")
    require_as_many_rows(X=x, Index=index)
    return jnp.take_along_axis(x, index, axis=1)


@op("where", inputs="Condition X Y", outputs="Out", differentiable="X Y", lod=None, row_wise=True)
def where(condition, x, y):
    """x where the condition is true, y elsewhere."""
    return jnp.where(condition, x, y)


def _infer_where_index(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {"Out": [ShapeDtype((-1, len(inputs["Condition"][0].shape)), np.dtype(np.int64))]}


@op("where_index", inputs="Condition", outputs="Out", static="Condition", grad=None, infer=_infer_where_index, lod=None)
def where_index(condition):
    """The positions where the condition is true, one per row."""
    return np.argwhere(condition).astype(np.int64)


@op("multiplex", inputs="Ids X*", outputs="Out", differentiable="X", lod=None, row_wise=True)
def multiplex(ids, xs):
    """Row i of the result is row i of xs[ids[i]]."""
    require_in_range(ids, len(xs), slot="Ids")
    stacked = jnp.stack(xs)
    return stacked[ids.reshape(-1), jnp.arange(stacked.shape[1], dtype=jnp.int32)]


def _depth(depth: int, tensor: Any) -> int:
    depth = depth if tensor is None else integer(tensor)
    if depth < 1:
        raise ValueError(f"depth is {depth}; it must be at least 1")
    return depth


def _infer_one_hot(inputs: Described, attrs: dict[str, Any]) -> Described:
    ids = inputs["X"][0]
    if not ids.shape or ids.shape[-1] != 1:
        raise ValueError(f"the last dim of X must be 1, not shape {list(ids.shape)}")
    return _infer_one_hot_v2({**inputs, "X": [ShapeDtype(ids.shape[:-1], ids.dtype)]}, attrs)


def _infer_one_hot_v2(inputs: Described, attrs: dict[str, Any]) -> Described:
    ids = inputs["X"][0]
    depth = -1 if inputs.get("depth_tensor") else _depth(attrs.get("depth", -1), None)
    return {"Out": [ShapeDtype((*ids.shape, depth), numpy_dtype(attrs.get("dtype", 5)))]}


_ONE_HOT: dict[str, Any] = {
    "inputs": "X depth_tensor?",
    "outputs": "Out",
    "static": "depth_tensor",
    "grad": None,
    "row_wise": True,
}


@op("one_hot", infer=_infer_one_hot, **_ONE_HOT)
def one_hot(ids, depth_tensor, *, depth=-1, dtype=5, allow_out_of_range=False):
    """Ids [..., 1] as one-hot rows; out-of-range ids, if allowed, give zeros."""
    return one_hot_v2(ids, depth_tensor, depth=depth, dtype=dtype, allow_out_of_range=allow_out_of_range)[..., 0, :]


@op("one_hot_v2", infer=_infer_one_hot_v2, **_ONE_HOT)
def one_hot_v2(ids, depth_tensor, *, depth=-1, dtype=5, allow_out_of_range=False):
    """one_hot for ids without the last dim of 1."""
    depth = _depth(depth, depth_tensor)
    if not allow_out_of_range:
        require_in_range(ids, depth, slot="X")
    return (ids[..., None] == jnp.arange(depth, dtype=ids.dtype)).astype(numpy_dtype(dtype))


@op("shard_index", inputs="X", outputs="Out", grad=None, row_wise=True)
def shard_index(ids, *, index_num, nshards, shard_id, ignore_value=-1):
    """Ids of this shard relative to its start; the others become ``ignore_value``."""
    if index_num < 1 or nshards < 1 or not 0 <= shard_id < nshards:
        raise ValueError(f"there is no shard {shard_id} of {nshards} over {index_num} ids")
    require_in_range(ids, index_num, slot="X")
    size = (index_num + nshards - 1) // nshards
    return jnp.where(ids // size == shard_id, ids % size, jnp.asarray(ignore_value, ids.dtype))
