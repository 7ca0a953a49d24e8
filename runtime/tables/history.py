"""The learning rates of a table's steps, which rows that have missed steps need."""

from __future__ import annotations

import numpy as np

from refluid.runtime.tables.kernels.missed import BLOCK, LARGE, MAP_SIZE, RATES, remember


class History:
    """The steps of a table so far; kernels read its arrays.

    Args:
      rule: how gradients change rows, as kernels read it.
    """

    def __init__(self, rule: np.ndarray):
        self._rule, self._last = rule, 0
        self.rates = np.zeros(RATES)
        self.blocks, self.large = np.zeros((4, MAP_SIZE)), np.zeros((1, MAP_SIZE))

    def record(self, number: int, rate: float) -> None:
        """Records a step. If steps before it are not known, as after a restart, they count as having had its rate."""
        begin = self._last if self._last < number else 0
        self.blocks, self.large = (
            _with_room(self.blocks, number // BLOCK + 1),
            _with_room(self.large, number // LARGE + 1),
        )
        remember(self._rule, self.rates, self.blocks, self.large, begin, number, rate)
        self._last = number


def _with_room(maps: np.ndarray, count: int) -> np.ndarray:
    if count <= len(maps):
        return maps
    return np.concatenate([maps, np.zeros((max(count - len(maps), len(maps)), MAP_SIZE))])
