"""Rows sorted into two tensors by a mask, and back again: what IfElse is made of."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from refluid.ops.infer import Described
from refluid.ops.registry import op


def _two_parts(inputs: Described, attrs: dict) -> Described:
    return {"OutTrue": inputs["X"], "OutFalse": inputs["X"]}


@op("split_lod_tensor", inputs="X Mask", outputs="OutTrue OutFalse", static="Mask", infer=_two_parts, lod=None)
def split_lod_tensor(x, mask, *, level=0):
    """The rows of x where the mask holds, and the others."""
    holds = _row_mask(mask, x.shape[0])
    return x[np.flatnonzero(holds)], x[np.flatnonzero(~holds)]


def _like_true_part(inputs: Described, attrs: dict) -> Described:
    return {"Out": inputs["InTrue"]}


@op(
    "merge_lod_tensor",
    inputs="X Mask InTrue InFalse",
    outputs="Out",
    static="Mask",
    differentiable="InTrue InFalse",
    infer=_like_true_part,
    lod=None,
)
def merge_lod_tensor(x, mask, in_true, in_false, *, level=0):
    """Rows of both parts in the order they had before `split_lod_tensor`."""
    holds = _row_mask(mask, np.size(mask))
    order = np.argsort(np.concatenate([np.flatnonzero(holds), np.flatnonzero(~holds)]))
    return jnp.concatenate([in_true, in_false])[order]


def _row_mask(mask, rows: int) -> np.ndarray:
    holds = np.asarray(mask).reshape(-1).astype(bool)
    if holds.size != rows:
        raise ValueError(f"the mask has {holds.size} elements for {rows} rows")
    return holds
