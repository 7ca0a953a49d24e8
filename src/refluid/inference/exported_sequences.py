"""Sequences in exported models: of fixed sizes, as (rows, offsets of each level), padded when a model is called.

Loops over sequences are as long as the longest one, and compiled code must know how long that is. So an exported model
takes a fixed number of sequences, with at most so many rows in all and so many in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from refluid.errors import FeedError
from refluid.ir import Variable, as_numpy
from refluid.lowering.buckets import extended
from refluid.ops.core.values import Ragged
from refluid.tensors import LoDTensor


@dataclass(frozen=True)
class Sizes:
    """The number of sequences of a feed, and the most rows in total and in the longest sequence."""

    sequences: int
    rows: int
    longest: int

    def __str__(self) -> str:
        return f"{self.sequences} sequences of {self.rows} rows in all and {self.longest} in the longest"

    @staticmethod
    def of(tensor: LoDTensor) -> Sizes:
        """The sizes of a batch."""
        levels = tensor.lod()
        return Sizes(len(levels[0]) - 1, len(np.asarray(tensor.value)), int(np.diff(levels[-1]).max(initial=1)))


def abstract(variable: Variable, sizes: Sizes) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The shapes of a feed's rows and offsets."""
    rows = jax.ShapeDtypeStruct((sizes.rows, *variable.shape[1:]), as_numpy(variable.dtype))
    counts = [sizes.sequences, *[sizes.rows] * (variable.lod_level - 1)]
    return rows, *(jax.ShapeDtypeStruct((count + 1,), np.int32) for count in counts)


def packed(name: str, value: Any, sizes: Sizes, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """A fed tensor's rows and offsets, padded to their sizes.

    Raises:
      FeedError: it holds no sequences, another number of them, or more than the model was exported for.
    """
    if not isinstance(value, LoDTensor) or not value.lod():
        raise FeedError(name, "it holds sequences", "give it as a LoDTensor: fluid.create_lod_tensor(rows, lengths)")
    found = Sizes.of(value)
    if found.sequences != sizes.sequences or found.rows > sizes.rows or found.longest > sizes.longest:
        raise FeedError(name, f"the model was exported for up to {sizes}; these are {found}")
    rows = extended(np.asarray(value.value, dtype), sizes.rows, 0)
    first, *inner = [np.asarray(level, np.int32) for level in value.lod()]
    return rows, first, *(extended(level, sizes.rows + 1) for level in inner)


def as_ragged(parts: Sequence[Any], sizes: Sizes) -> Ragged:
    """Rows and offsets as ops take them."""
    return Ragged(parts[0], tuple(parts[1:]), sizes.longest)


def unpacked(parts: Sequence[Any], hidden: int) -> LoDTensor | np.ndarray:
    """A computed sequence without its padding; an array where its levels are none in Fluid's eyes."""
    tensor = LoDTensor.of_sequences(Ragged(parts[0], tuple(parts[1:]), 0, hidden))
    return tensor if tensor.lod() else np.asarray(tensor.value)


def sizes_of(feed: Mapping[str, Any]) -> dict[str, Sizes]:
    """The sizes of all sequences in a feed."""
    return {name: Sizes.of(value) for name, value in feed.items() if isinstance(value, LoDTensor) and value.lod()}
