"""Splitting rows or sequences into two tensors by a mask, and merging them again, as IfElse does."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.infer import Described, described_like
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.nested import is_known, item_room, joined, pick_items, visible_offsets, without_padding


def _two_parts(inputs: Described, attrs: dict) -> Described:
    part = inputs["X"][0]._replace(lod_level=0)
    return {"OutTrue": [part], "OutFalse": [part]}


@op("split_lod_tensor", inputs="X Mask", outputs="OutTrue OutFalse", static="Mask", infer=_two_parts, lod="aware")
def split_lod_tensor(x, mask, *, level=0):
    """The items of x (rows, or sequences of a level) where the mask holds, and the others; outer levels are dropped."""
    items = _items(x, level)
    holds = _item_mask(mask, item_room(items))
    return _picked(items, np.flatnonzero(holds)), _picked(items, np.flatnonzero(~holds))


def _items(x: Any, level: int) -> Any:
    """x as items of a level, without padding if its offsets are known."""
    x = without_padding(x) if is_known(*getattr(x, "offsets", ())) else x
    offsets = visible_offsets(x)[level:]
    return Ragged(plain(x), offsets, x.longest) if offsets else plain(x)


def _picked(items: Any, places: np.ndarray) -> Any:
    picked = pick_items(items, jnp.asarray(places, jnp.int32), jnp.ones(places.size, bool))
    return without_padding(picked) if is_known(*getattr(picked, "offsets", ())) else picked


def _item_mask(mask: Any, count: int) -> np.ndarray:
    holds = np.asarray(mask).reshape(-1)
    if holds.dtype != bool:
        raise TypeError(f"Mask must be bool, not {holds.dtype}")
    if holds.size != count:
        raise ValueError(f"the mask has {holds.size} elements for {count} rows or sequences")
    return holds


_MERGE: dict[str, Any] = {
    "inputs": "X Mask InTrue InFalse",
    "outputs": "Out",
    "static": "Mask",
    "infer": described_like("InTrue", lambda part: part._replace(lod_level=0)),
    "lod": "aware",
}


@op("merge_lod_tensor_infer", **_MERGE, grad=None)  # its name in inference programs
@op("merge_lod_tensor", **_MERGE, differentiable="InTrue InFalse")
def merge_lod_tensor(x, mask, in_true, in_false, *, level=0):
    """The items of both parts in their order before `split_lod_tensor`, with the outer levels of X."""
    holds = _item_mask(mask, np.size(mask))
    parts = joined([_items(in_true, 0), _items(in_false, 0)])
    order = np.argsort(np.concatenate([np.flatnonzero(holds), np.flatnonzero(~holds)]))
    merged = _picked(parts, order)
    outer = visible_offsets(x)[:level]
    if not outer:
        return merged
    return Ragged(plain(merged), (*outer, *visible_offsets(merged)), getattr(merged, "longest", merged.shape[0]))
