"""A running weighted average of NumPy values."""

from typing import Any

import numpy as np

__all__ = ["WeightedAverage"]


class WeightedAverage:
    """Averages values, weighted, outside of any program."""

    def __init__(self):
        self.reset()

    def reset(self):
        """Forgets everything added so far."""
        self.numerator: Any = 0
        self.denominator: Any = 0

    def add(self, value, weight):
        """Adds a number or an array of numbers with its weight."""
        if not isinstance(value, (int, float, np.number, np.ndarray)):
            raise ValueError(f"the value must be a number or a NumPy array, not {type(value).__name__}")
        if not isinstance(weight, (int, float, np.number)) and not (
            isinstance(weight, np.ndarray) and weight.shape == (1,)
        ):
            raise ValueError(f"the weight must be a number, not {type(weight).__name__}")
        self.numerator = self.numerator + value * weight
        self.denominator = self.denominator + weight

    def eval(self):
        """The average of what was added."""
        if np.all(self.denominator == 0):
            raise ValueError("there is nothing to average: nothing was added, or only with weight zero")
        return self.numerator / self.denominator
