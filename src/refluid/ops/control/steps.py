"""Sequences taken step by step: the order in which a DynamicRNN visits them, and arrays with one tensor per step.

A `RankTable` sorts sequences by length, longest first, so that those still running at a step are the first ones.
`Steps` is an array whose number of tensors is not known while tracing: all tensors are packed in batch order, so that
no step takes more space than it has rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.control.stacked import Stacked
from refluid.ops.core.values import Ragged
from refluid.ops.sequence.nested import first_items, is_known, item_count, item_range, joined, level_view, pick_items
from refluid.ops.sequence.recurrence import BatchOrder


@partial(jax.tree_util.register_dataclass, data_fields=["order", "offsets"], meta_fields=["longest", "hidden"])
@dataclass(frozen=True)
class RankTable:
    """The sequences of one LoD level, sorted by length.

    order: where their items are in batch order. offsets: those of the levels above, then of the level itself; Fluid
    does not see the first ``hidden``. longest: a bound on the number of steps.
    """

    order: BatchOrder
    offsets: tuple[Any, ...]
    longest: int
    hidden: int = 0

    @classmethod
    def of(cls, x: Ragged, level: int) -> RankTable:
        """The table of a level of ``x``."""
        view = level_view(x, level)
        return cls(BatchOrder.of(view), view.offsets, view.longest, x.hidden)

    @property
    def level(self) -> int:
        """The index of the level among those that users see."""
        return len(self.offsets) - self.hidden - 1

    @property
    def width(self) -> int:
        """How many sequences there are, padding included."""
        return self.order.lanes.shape[0]

    @property
    def steps(self) -> Any:
        """How long the longest sequence is."""
        return jnp.max(self.offsets[-1][1:] - self.offsets[-1][:-1], initial=0)

    def running(self, step: Any) -> Any:
        """How many sequences are longer than ``step``."""
        return running(self.order.starts, step)


@partial(jax.tree_util.register_dataclass, data_fields=["items", "starts", "count"], meta_fields=["width"])
@dataclass(frozen=True)
class Steps:
    """An array of ``count`` tensors with at most ``width`` items each: rows, or sequences where ``items`` is a Ragged.

    The items of tensor t are ``starts[t]`` to ``starts[t + 1]``; there is room for ``width`` more after the last one.
    """

    items: Any
    starts: Any
    count: Any
    width: int

    @property
    def dtype(self):
        return self.items.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.items.shape

    def at(self, step: Any) -> Any:
        """The tensor of a step, without padding if its position is known."""
        if is_known(step, *jax.tree.leaves((self.starts, getattr(self.items, "offsets", ())))):
            return item_range(self.items, int(self.starts[step]), int(self.starts[step + 1]))
        start, count = self.starts[step], self.starts[step + 1] - self.starts[step]
        if not isinstance(self.items, Ragged):
            return first_items(lax.dynamic_slice_in_dim(self.items, start, self.width), count)
        places = start + jnp.arange(self.width, dtype=jnp.int32)
        rows = min(self.items.shape[0], self.width * self.items.longest)
        return first_items(pick_items(self.items, places, jnp.arange(self.width) < count, rows), count)

    def to_list(self) -> list[Any]:
        """The tensors as a list; their number must be known."""
        return [self.at(step) for step in range(int(self.count))]

    @classmethod
    def of_list(cls, tensors: list[Any], width: int) -> Steps:
        """Tensors without padding, packed."""
        starts = np.concatenate([[0], np.cumsum([item_count(each) for each in tensors])]).astype(np.int32)
        items = joined(tensors)
        if isinstance(items, Ragged):
            places = jnp.arange(starts[-1] + width, dtype=jnp.int32)
            real = places < starts[-1]
            return cls(pick_items(items, jnp.where(real, places, 0), real), starts, len(tensors), width)
        room = [(0, width)] + [(0, 0)] * (items.ndim - 1)
        return cls(jnp.pad(items, room), starts, len(tensors), width)


def running(starts: Any, step: Any) -> Any:
    """The number of items of a step, given where each step begins; 0 after the last step."""
    starts = jnp.append(starts, starts[-1])
    step = jnp.clip(step, 0, starts.shape[0] - 2)
    return starts[step + 1] - starts[step]


def length_of(array: Any) -> Any:
    """The number of tensors in an array, which may be None."""
    return array.count if isinstance(array, Steps | Stacked) else len(array or ())


def as_list(array: Any) -> list[Any]:
    """An array as a new list; the number of tensors must be known."""
    return array.to_list() if isinstance(array, Steps | Stacked) else list(array or ())
