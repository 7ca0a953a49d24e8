"""Whether training descends: gradients, and what was learned, then point the same way as those before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def agreement(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> float:
    """The cosine between two directions, each given as arrays of the same shapes.

    0 if one has no length, and -1 if one is not finite: training diverges.
    """
    dot, one, other = (
        sum(float(np.vdot(a, b)) for a, b in zip(*pair, strict=True))
        for pair in ((some, others), (some, some), (others, others))
    )
    if not math.isfinite(one * other):
        return -1.0
    return dot / math.sqrt(one * other) if one * other > 0 else 0.0
