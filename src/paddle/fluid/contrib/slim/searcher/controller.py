"""Controllers: they propose tokens, which stand for networks, and learn from rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["EvolutionaryController", "SAController"]


class EvolutionaryController:
    """What all controllers are."""

    def update(self, tokens: Sequence[int], reward: float) -> None:
        """Tells how good these tokens were."""
        raise NotImplementedError("a controller learns from rewards")

    def reset(self, range_table: Sequence[int], *args: Any, **kwargs: Any) -> None:
        """Starts a search."""
        raise NotImplementedError("a controller starts searches")

    def next_tokens(self) -> list[int]:
        """Proposes tokens."""
        raise NotImplementedError("a controller proposes tokens")


class SAController(EvolutionaryController):
    """Simulated annealing: better tokens are kept, worse ones with a probability that falls.

    Args:
      range_table: how many values each token may have.
      reduce_rate: what the temperature is multiplied by, every time.
      init_temperature: the temperature at first.
      max_iter_number: how many times tokens are proposed until some satisfy the constraint.
    """

    def __init__(
        self,
        range_table: Sequence[int] | None = None,
        reduce_rate: float = 0.85,
        init_temperature: float = 1024,
        max_iter_number: int = 300,
    ):
        self._range_table, self._reduce_rate = range_table, reduce_rate
        self._init_temperature, self._max_iter_number = init_temperature, max_iter_number
        self._reward, self._best, self._iterations = -1.0, -1.0, 0
        self._tokens: list[int] | None = None
        self.best_tokens: list[int] | None = None
        self._constraint: Callable[[list[int]], bool] | None = None

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        range_table: Sequence[int],
        init_tokens: Sequence[int],
        constrain_func: Callable[[list[int]], bool] | None = None,
    ) -> None:
        """Starts a search.

        Args:
          init_tokens: where it starts.
          constrain_func: whether tokens are allowed.
        """
        self._range_table, self._tokens, self._constraint = list(range_table), list(init_tokens), constrain_func
        self._iterations = 0

    def update(self, tokens: Sequence[int], reward: float) -> None:
        """Tells how good these tokens were; they may become those to search around."""
        self._iterations += 1
        temperature = self._init_temperature * self._reduce_rate**self._iterations
        if reward > self._reward or np.random.random() <= math.exp((reward - self._reward) / temperature):
            self._reward, self._tokens = reward, list(tokens)
        if reward > self._best:
            self._best, self.best_tokens = reward, list(tokens)

    def next_tokens(self, control_token: Sequence[int] | None = None) -> list[int]:
        """Proposes tokens: those at hand, or ``control_token``, with one changed."""
        tokens = self._tokens if control_token is None else list(control_token)
        if tokens is None or self._range_table is None:
            raise ValueError("call reset before next_tokens: the controller has no tokens to start from")
        for _ in range(self._max_iter_number):
            new = self._changed(tokens)
            if self._constraint is None or self._constraint(new):
                return new
        raise RuntimeError(f"none of {self._max_iter_number} proposals satisfied constrain_func")

    def _changed(self, tokens: Sequence[int]) -> list[int]:
        assert self._range_table is not None
        choices = [place for place, size in enumerate(self._range_table) if size > 1]
        place = int(np.random.choice(choices))
        new = list(tokens)
        new[place] = (new[place] + np.random.randint(1, self._range_table[place])) % self._range_table[place]
        return [int(token) for token in new]
