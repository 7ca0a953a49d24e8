"""Arrays at one moment, copied while they are in use. An update that comes before all is copied helps, and waits.

A view into a parameter would keep the next update from happening in place: XLA would copy all of it to fresh memory,
which takes several times as long as copying it to memory that has been used before.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

_PIECE = 1 << 20  # elements that are copied at once


class FrozenArrays:
    """Copies of arrays, complete after `finish`.

    Args:
      sources: the arrays, which nobody changes before that.
      memory: copies that were made before and are of no use any more, by name.
    """

    def __init__(self, sources: Mapping[str, np.ndarray], memory: Mapping[str, np.ndarray]):
        self.arrays = {name: _like(source, memory.get(name)) for name, source in sources.items()}
        self._pieces: deque[tuple[np.ndarray, np.ndarray]] = deque()
        for name, source in sources.items():
            target, whole = self.arrays[name].reshape(-1), source.reshape(-1)
            for begin in range(0, whole.size, _PIECE):
                self._pieces.append((target[begin : begin + _PIECE], whole[begin : begin + _PIECE]))
        self._left = len(self._pieces)
        self._changed = threading.Condition()

    @property
    def is_complete(self) -> bool:
        """Whether all is copied."""
        return not self._left

    def finish(self) -> None:
        """Copies what nobody else is copying, and returns when all is copied."""
        while self._left:
            try:
                piece: Any = self._pieces.popleft()
            except IndexError:
                break
            np.copyto(*piece)
            del piece  # a view of it would be in the way of the update
            with self._changed:
                self._left -= 1
                self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: not self._left)


def _like(source: np.ndarray, memory: np.ndarray | None) -> np.ndarray:
    if memory is not None and (memory.shape, memory.dtype) == (source.shape, source.dtype):
        return memory
    return np.empty(source.shape, source.dtype)
