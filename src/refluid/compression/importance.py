"""Which channels matter least, and how much each parameter may lose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np


def least_important(weight: np.ndarray, ratio: float, axis: int) -> np.ndarray:
    """The slices along ``axis`` with the smallest sums of magnitudes: this part of them, smallest first."""
    count = round(weight.shape[axis] * ratio)
    sums = np.abs(weight).sum(axis=tuple(i for i in range(weight.ndim) if i != axis))
    return np.argsort(sums, kind="stable")[:count]


def uniform_ratio(removed: Callable[[float], float], target: float, tolerance: float = 0.01) -> float:
    """The ratio at which ``removed`` comes to about ``target``, by bisection."""
    low, high = 0.0, 1.0
    while True:
        ratio = (low + high) / 2
        found = removed(ratio)
        if abs(found - target) < tolerance or high - low < 1e-5:  # channels are whole: a model shrinks in steps
            return ratio
        low, high = (ratio, high) if found < target else (low, ratio)


def ratios_by_sensitivity(
    sensitivities: Mapping[str, Mapping[str, Sequence[float]]],
    removed: Callable[[dict[str, float]], float],
    target: float,
    tolerance: float = 0.01,
) -> dict[str, float]:
    """How much of each parameter to prune so that all cost the same accuracy, and ``removed`` comes to ``target``.

    Args:
      sensitivities: parameter -> the ratios that were tried (``pruned_percent``) and what they cost (``loss``).
      removed: parameter -> ratio into the part of the model that is removed.
    """
    curves = {name: _Curve(found["pruned_percent"], found["loss"]) for name, found in sensitivities.items()}
    low, high = 0.0, max(max(found["loss"]) for found in sensitivities.values())
    while True:
        cost = (low + high) / 2
        ratios = {name: curve.ratio(cost) for name, curve in curves.items()}
        found = removed(ratios)
        if abs(found - target) < tolerance or high - low < 1e-7:
            return ratios
        low, high = (cost, high) if found < target else (low, cost)


class _Curve:
    """A cubic through what pruning a parameter costs."""

    def __init__(self, ratios: Sequence[float], losses: Sequence[float]):
        points = [(0.0, 0.0), *zip(ratios, losses, strict=True)]
        x, y = zip(*points, strict=True)
        self._coefficients = np.polyfit(x, y, min(3, len(points) - 1))
        self._most = max(x)

    def ratio(self, cost: float) -> float:
        """The largest ratio, of those that were tried, that costs no more."""
        shifted = self._coefficients.copy()
        shifted[-1] -= cost
        roots = [root.real for root in np.roots(shifted) if abs(root.imag) < 1e-9 and 0 < root.real <= self._most]
        if roots:
            return float(min(roots))
        return self._most if np.polyval(self._coefficients, self._most) <= cost else 0.0
