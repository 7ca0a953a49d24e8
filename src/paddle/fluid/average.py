"""A running weighted average of NumPy values."""

from typing import Any

import numpy as np

from refluid.fetching import also_a_number

__all__ = ["WeightedAverage"]


class WeightedAverage:
    """Accumulates a weighted average outside of any program."""

    def __init__(self):
        self.reset()

    def reset(self):
        """Discards all values added so far."""
        self.numerator: Any = 0
        self.denominator: Any = 0

    def add(self, value, weight):
        """Adds a number or an array with its weight."""
        if not isinstance(value, (int, float, np.number, np.ndarray)):
            raise ValueError(f"value must be a number or a NumPy array, not {type(value).__name__}")
        if not isinstance(weight, (int, float, np.number)) and not (
            isinstance(weight, np.ndarray) and weight.shape == (1,)
        ):
            raise ValueError(f"weight must be a number, not {type(weight).__name__}")
        self.numerator = self.numerator + value * weight
        self.denominator = self.denominator + weight

    def eval(self):
        """Returns the average of the values added so far."""
        if np.all(self.denominator == 0):
            raise ValueError("nothing to average: no value with a nonzero weight has been added")
        return also_a_number(self.numerator / self.denominator)
