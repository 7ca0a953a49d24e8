"""Layers by which the replicas of a program communicate. Fluid keeps them private: their names begin with ``_``."""

from __future__ import annotations

from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable, unique_name

_REDUCTIONS = ("sum", "prod", "max", "min")  # in the order of the numbers that the allreduce op takes


def _check_reduction(reduce_type: str) -> None:
    if reduce_type not in _REDUCTIONS:
        raise TypeError(f"reduce_type must be one of {', '.join(_REDUCTIONS)}, not {reduce_type!r}")


def _append(type: str, x: Variable, out: Variable, **attrs: Any) -> Variable:
    LayerHelper(type).append_op(type=type, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def _beside(x: Variable, suffix: str, shape: Any = None) -> Variable:
    return x.block.create_var(
        name=unique_name.generate(f"{x.name}.{suffix}"),
        shape=list(x.shape) if shape is None else shape,
        dtype=x.dtype,
        type=x.type,
        persistable=x.persistable,
        stop_gradient=x.stop_gradient,
    )


def _allreduce(x, out=None, reduce_type="sum", sync_mode=False):
    """The sum, product, maximum or minimum of all replicas' x."""
    _check_reduction(reduce_type)
    out = _beside(x, "tmp") if out is None else out
    return _append("allreduce", x, out, reduce_type=_REDUCTIONS.index(reduce_type), sync_mode=sync_mode)


def _broadcast(x, root, sync_mode=False):
    """Replaces x by that of replica ``root``."""
    return _append("broadcast", x, x, root=root, sync_mode=sync_mode)


def _c_allreduce(x, out=None, reduce_type="sum", ring_id=0, use_calc_stream=False):
    """The sum, product, maximum or minimum of all replicas' x."""
    _check_reduction(reduce_type)
    type = f"c_allreduce_{reduce_type}"
    out = _beside(x, type) if out is None else out
    return _append(type, x, out, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_broadcast(x, root=0, ring_id=0, use_calc_stream=False):
    """Replaces x by that of replica ``root``."""
    return _append("c_broadcast", x, x, root=root, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_allgather(x, nranks, ring_id=0, use_calc_stream=False):
    """The rows of all replicas' x, one after the other."""
    rows = -1 if x.shape[0] < 0 else x.shape[0] * nranks
    out = _beside(x, "c_allgather", [rows, *x.shape[1:]])
    return _append("c_allgather", x, out, nranks=nranks, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_reducescatter(x, nranks, ring_id=0, use_calc_stream=False):
    """This replica's share of the rows of the sum of all x."""
    if x.shape[0] > 0 and x.shape[0] % nranks:
        raise ValueError(f"{x.name} has {x.shape[0]} rows, which cannot be divided evenly among {nranks} replicas")
    rows = -1 if x.shape[0] < 0 else x.shape[0] // nranks
    out = _beside(x, "c_reducescatter", [rows, *x.shape[1:]])
    return _append("c_reducescatter", x, out, nranks=nranks, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_sync_calc_stream(x):
    """x: XLA orders computation and communication itself."""
    return _append("c_sync_calc_stream", x, x)


def _c_sync_comm_stream(x, ring_id):
    """x: XLA orders computation and communication itself."""
    return _append("c_sync_comm_stream", x, x, ring_id=ring_id)
