"""Sizes that sequences are padded to, so that batches of other lengths find a compiled step.

A size that was used before is used again as long as it does not waste more than half; a new one leaves some room. So
programs of variable-length batches settle to a handful of compilations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refluid.ops.values import Ragged
from refluid.tensors import LoDTensor

_SMALLEST = 8
_ROOM = 1.125  # a new bucket is at least this much larger than what asked for it
_WASTE = 1.5  # a bucket serves sizes down to this fraction of it


class Buckets:
    """The sizes in use, by what they are sizes of."""

    def __init__(self):
        self.sizes: dict[Any, list[int]] = {}
        self._this_feed: dict[Any, int] = {}

    def begin_feed(self) -> None:
        """Starts another feed. Within one, equal needs get equal sizes: words and their labels go together."""
        self._this_feed.clear()

    def pick(self, name: str, kind: Any, need: int, room: float = _ROOM) -> int:
        """The padded size for ``need``: one in use, or a new one."""
        known = self.sizes.setdefault((name, kind), [])
        size = self._this_feed.get((kind, need))
        if size is None:
            fitting = [size for size in known if need <= size <= max(_SMALLEST, need * _WASTE)]
            size = min(fitting) if fitting else round_up(int(need * room))
            self._this_feed[kind, need] = size
        if size not in known:
            known.append(size)
        return size

    def ragged(self, name: str, tensor: LoDTensor, exact: bool) -> Ragged:
        """A fed sequence tensor as rules take it; ``exact`` leaves row and sequence counts as they are."""
        lod = tensor._lod
        data = np.asarray(tensor.value)
        offsets = [np.asarray(level, np.int32) for level in lod]
        longest = int(np.diff(offsets[-1]).max(initial=0))
        if exact:
            return Ragged(data, tuple(offsets), round_up(longest))
        rows = self.pick(name, "rows", len(data))
        for number in range(1, len(offsets)):
            count = self.pick(name, ("sequences", number), len(offsets[number])) + 1
            offsets[number] = extended(offsets[number], count)
        return Ragged(extended(data, rows, 0), tuple(offsets), self.pick(name, "longest", longest, room=1.0))


def extended(array: np.ndarray, size: int, index: int = -1) -> np.ndarray:
    """``array`` with copies of one of its elements at the end. A copy of a real row cannot produce NaNs of its own."""
    if len(array) >= size:
        return array
    out = np.empty((size, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    out[len(array) :] = array[index] if len(array) else 0
    return out


def round_up(size: int) -> int:
    """The next size with at most three significant binary digits."""
    if size <= _SMALLEST:
        return _SMALLEST
    step = 1 << (size.bit_length() - 3)
    return -(-size // step) * step


def to_tensor(value: Ragged) -> LoDTensor:
    """A computed sequence as users see it: without padding."""
    levels: list[list[int]] = []
    count: int | None = None
    for offsets in value.offsets:
        level = np.asarray(offsets)
        level = level if count is None else level[: count + 1]
        levels.append(level.tolist())
        count = int(level[-1])
    tensor = LoDTensor(np.asarray(value.data)[:count].copy())
    tensor.set_lod(levels[value.hidden :])
    return tensor
