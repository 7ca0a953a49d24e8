"""Ops by which the replicas of a program communicate: all-reduce, broadcast, gather and scatter.

Outside of a step over several devices there is one replica, and they pass their input on. Rings and streams of Fluid
have no counterpart: XLA orders communication and computation by what depends on what. Gradients are those of the sum of
all replicas' losses. They are written out: what `jax.vjp` makes of a collective depends on how a step is mapped.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.core import replicas
from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.replicas import AXIS
from refluid.ops.core.values import SelectedRows

# Arrays up to this size are summed as one: a collective takes longer to start than to copy them.
_JOINED_BYTES = 1 << 16
# With gloo, larger ones too. Its thread spins, on the core that computes, from the arrival of data to the collective
# that wants it: with a collective for each array that is most of the backward pass of whoever is behind.
_JOINED_BYTES_WITH_GLOO = 1 << 26


def sum_over_replicas(x: Any) -> Any:
    """The sum of all replicas' x; of SelectedRows the rows of all, which add up when they are applied."""
    if replicas.count() == 1:
        return x
    if isinstance(x, SelectedRows):
        return SelectedRows(_gather(x.rows), _gather(x.values), x.height)
    return lax.psum(x, AXIS)


def _sum_together(arguments: list[list[Any]]) -> list[Any]:
    """Sums many arrays with few collectives: small ones of a dtype travel as one."""
    values = [value for (value,) in arguments]
    if replicas.count() == 1:
        return values
    gloo = jax.process_count() > 1 and jax.default_backend() == "cpu"
    most = _JOINED_BYTES_WITH_GLOO if gloo else _JOINED_BYTES
    small: dict[Any, list[int]] = {}
    for i, x in enumerate(values):
        if not isinstance(x, SelectedRows) and x.size * x.dtype.itemsize <= most:
            small.setdefault(x.dtype, []).append(i)
    results: list[Any] = [None] * len(values)
    for places in small.values():
        for i, total in zip(places, _sum_as_one([values[i] for i in places]), strict=True):
            results[i] = total
    return [sum_over_replicas(x) if total is None else total for x, total in zip(values, results, strict=True)]


def _sum_as_one(arrays: list[Any]) -> list[Any]:
    total = lax.psum(jnp.concatenate([x.reshape(-1) for x in arrays]), AXIS)
    parts, start = [], 0
    for x in arrays:
        parts.append(lax.slice(total, (start,), (start + x.size,)).reshape(x.shape))
        start += x.size
    return parts


@op("c_allreduce_sum", inputs="X", outputs="Out", together=_sum_together)
def c_allreduce_sum(x):
    """The sum of all replicas' x."""
    return sum_over_replicas(x)


@op("c_allreduce_sum_grad", inputs="Out@GRAD", outputs="X@GRAD", lod=None)
def c_allreduce_sum_grad(out_grad):
    """Every replica's x is in every replica's sum."""
    return sum_over_replicas(out_grad)


def _extreme(x: Any, reduce: Any) -> Any:
    return x if replicas.count() == 1 else reduce(_dense(x), AXIS)


def _extreme_grad(x: Any, out: Any, out_grad: Any) -> Any:
    """The gradient, shared by the replicas whose x was chosen."""
    chosen = (x == out).astype(out_grad.dtype)
    return chosen * sum_over_replicas(out_grad) / sum_over_replicas(chosen)


@op("c_allreduce_max", inputs="X", outputs="Out")
def c_allreduce_max(x):
    """The maximum of all replicas' x, element by element."""
    return _extreme(x, lax.pmax)


@op("c_allreduce_min", inputs="X", outputs="Out")
def c_allreduce_min(x):
    """The minimum of all replicas' x, element by element."""
    return _extreme(x, lax.pmin)


@op("c_allreduce_prod", inputs="X", outputs="Out")
def c_allreduce_prod(x):
    """The product of all replicas' x, element by element."""
    return x if replicas.count() == 1 else jnp.prod(lax.all_gather(_dense(x), AXIS), axis=0, dtype=x.dtype)


for _type in ("c_allreduce_max", "c_allreduce_min"):
    op(f"{_type}_grad", inputs="X Out Out@GRAD", outputs="X@GRAD", lod=None)(_extreme_grad)


@op("c_allreduce_prod_grad", inputs="X Out@GRAD", outputs="X@GRAD", lod=None)
def c_allreduce_prod_grad(x, out_grad):
    """The product of the other replicas' x, times the gradient; a zero among them is no problem."""
    if replicas.count() == 1:
        return out_grad
    everyone = lax.all_gather(x, AXIS)
    own = jnp.arange(replicas.count()).reshape(-1, *(1,) * x.ndim) == replicas.index()
    return jnp.prod(jnp.where(own, 1, everyone), axis=0, dtype=x.dtype) * sum_over_replicas(out_grad)


_REDUCTIONS = (c_allreduce_sum, c_allreduce_prod, c_allreduce_max, c_allreduce_min)


@op("allreduce", inputs="X", outputs="Out", grad=None)
def allreduce(x, *, reduce_type=0):
    """The sum (0), product (1), maximum (2) or minimum (3) of all replicas' x."""
    if not 0 <= reduce_type < len(_REDUCTIONS):
        raise ValueError(f"reduce_type must be 0 (sum), 1 (product), 2 (maximum) or 3 (minimum), not {reduce_type}")
    return _REDUCTIONS[reduce_type](x)


@op("c_broadcast", inputs="X", outputs="Out")
def c_broadcast(x, *, root=0):
    """The x of replica ``root``."""
    return _broadcast(x, root)


@op("c_broadcast_grad", inputs="Out@GRAD", outputs="X@GRAD", lod=None)
def c_broadcast_grad(out_grad, *, root=0):
    """All replicas' gradients reach the root's x; no other x is used."""
    total = sum_over_replicas(out_grad)
    return jnp.where(replicas.index() == root, total, jnp.zeros_like(total))


@op("broadcast", inputs="X", outputs="Out", grad=None)
def broadcast(x, *, root=0):
    """The x of replica ``root``."""
    return _broadcast(x, root)


def _broadcast(x: Any, root: int) -> Any:
    count = replicas.count()
    if not 0 <= root < count:
        raise ValueError(f"root is {root}; with {count} replicas it must be between 0 and {count - 1}")
    if count == 1:
        return x
    if isinstance(x, SelectedRows):
        return SelectedRows(_broadcast(x.rows, root), _broadcast(x.values, root), x.height)
    if x.dtype == bool:
        return _broadcast(x.astype(jnp.uint8), root).astype(bool)
    return lax.psum(jnp.where(replicas.index() == root, x, jnp.zeros_like(x)), AXIS)


def _gathered(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {"Out": [_with_rows(value, lambda rows: rows * int(attrs.get("nranks", 1))) for value in inputs["X"]]}


def _scattered(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {"Out": [_with_rows(value, lambda rows: _share(rows, int(attrs.get("nranks", 1)))) for value in inputs["X"]]}


def _with_rows(value: ShapeDtype, change: Any) -> ShapeDtype:
    return value._replace(shape=(-1 if value.shape[0] == -1 else change(value.shape[0]), *value.shape[1:]))


def _share(rows: int, count: int) -> int:
    if rows % count:
        raise ValueError(f"{rows} rows cannot be divided evenly among {count} replicas")
    return rows // count


@op("c_allgather", inputs="X", outputs="Out", lod=None, infer=_gathered)
def c_allgather(x, *, nranks=1):
    """All replicas' x, one after the other."""
    _check_count(nranks)
    return _gather(_dense(x))


@op("c_allgather_grad", inputs="Out@GRAD", outputs="X@GRAD", lod=None)
def c_allgather_grad(out_grad):
    """The rows that came from this replica, from the gradients of all."""
    return _scatter(out_grad)


@op("c_reducescatter", inputs="X", outputs="Out", lod=None, infer=_scattered)
def c_reducescatter(x, *, nranks=1):
    """This replica's share of the rows of the sum of all x."""
    _check_count(nranks)
    _share(x.shape[0], nranks)
    return _scatter(_dense(x))


@op("c_reducescatter_grad", inputs="Out@GRAD", outputs="X@GRAD", lod=None)
def c_reducescatter_grad(out_grad):
    """Every replica's x is in the shares of all."""
    return _gather(out_grad)


def _gather(x: Any) -> Any:
    return x if replicas.count() == 1 else lax.all_gather(x, AXIS, tiled=True)


def _scatter(x: Any) -> Any:
    return x if replicas.count() == 1 else lax.psum_scatter(x, AXIS, scatter_dimension=0, tiled=True)


def _check_count(nranks: int) -> None:
    if nranks != replicas.count():
        raise ValueError(f"nranks is {nranks}, but the program runs in {replicas.count()} replicas")


def _dense(x: Any) -> Any:
    if isinstance(x, SelectedRows):
        raise TypeError("X is a sparse gradient (SelectedRows); only sums and broadcasts of these are supported")
    return x


def _same(x: Any) -> Any:
    """x: streams are XLA's business."""
    return x


for _type in ("c_sync_calc_stream", "c_sync_comm_stream"):
    op(_type, inputs="X", outputs="Out", row_wise=True, slices="rows", moves_values=True)(_same)
