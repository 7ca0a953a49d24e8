"""Sequences taken step by step: the order in which a DynamicRNN visits them, and arrays with one tensor per step.

A `RankTable` sorts sequences by length, longest first, so that those still running at a step are the first ones.
`Steps` is an array of tensors of which it is not known while tracing how many there are: all of them packed one after
the other in batch order, so that no step takes more room than it has rows.
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

    order: where the items that they consist of are in batch order. offsets: those of the level, after those of the
    levels above it; the first ``hidden`` are none in Fluid's eyes. longest: a bound on the number of steps.
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
        """Which of the levels that users see it is."""
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

    Those of tensor t are ``starts[t]`` to ``starts[t + 1]``; there is room for ``width`` more after the last one.
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
        """The tensor of a step, without padding if it is known where it lies."""
        if is_known(step, *jax.tree.leaves((self.starts, getattr(self.items, "offsets", ())))):
            return item_range(self.items, int(self.starts[step]), int(self.starts[step + 1]))
        start, count = self.starts[step], self.starts[step + 1] - self.starts[step]
        if not isinstance(self.items, Ragged):
            return first_items(lax.dynamic_slice_in_dim(self.items, start, self.width), count)
        places = start + jnp.arange(self.width, dtype=jnp.int32)
        rows = min(self.items.shape[0], self.width * self.items.longest)
        return first_items(pick_items(self.items, places, jnp.arange(self.width) < count, rows), count)

    def to_list(self) -> list[Any]:
        """The tensors one by one, where it is known how many there are."""
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
    """How many items the step has, given where those of each step begin; 0 after the last step."""
    starts = jnp.append(starts, starts[-1])
    step = jnp.clip(step, 0, starts.shape[0] - 2)
    return starts[step + 1] - starts[step]


def length_of(array: Any) -> Any:
    """How many tensors an array holds, which may have none yet."""
    return array.count if isinstance(array, Steps | Stacked) else len(array or ())


def as_list(array: Any) -> list[Any]:
    """An array as a list of its own, where it is known how many tensors it holds."""
    return array.to_list() if isinstance(array, Steps | Stacked) else list(array or ())
