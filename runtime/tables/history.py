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

    def numbers(self) -> np.ndarray:
        """All of it as numbers, for files."""
        known = np.arange(max(0, self._last - RATES), self._last) + 1
        blocks, large = self.blocks[: self._last // BLOCK + 1], self.large[: self._last // LARGE + 1]
        sizes = np.array([self._last, len(known), len(blocks), len(large)], np.float64)
        return np.concatenate([sizes, self.rates[known % RATES], blocks.ravel(), large.ravel()])

    def read(self, numbers: np.ndarray) -> None:
        """The inverse of `numbers`.

        Raises:
          ValueError: they are none that `numbers` returned.
        """
        last, known, blocks, large = (int(number) for number in numbers[:4]) if len(numbers) >= 4 else (-1, 0, 0, 0)
        expected = min(last, RATES), last // BLOCK + 1, last // LARGE + 1
        if last < 0 or (known, blocks, large) != expected or len(numbers) != 4 + known + (blocks + large) * MAP_SIZE:
            raise ValueError(f"{len(numbers)} numbers do not tell the learning rates of {last} steps")
        rates, maps = np.split(numbers[4:], [known])
        self._last = last
        self.rates[(np.arange(last - known, last) + 1) % RATES] = rates
        self.blocks = _with_room(maps[: blocks * MAP_SIZE].reshape(-1, MAP_SIZE).copy(), 4)
        self.large = maps[blocks * MAP_SIZE :].reshape(-1, MAP_SIZE).copy()


def _with_room(maps: np.ndarray, count: int) -> np.ndarray:
    if count <= len(maps):
        return maps
    return np.concatenate([maps, np.zeros((max(count - len(maps), len(maps)), MAP_SIZE))])
