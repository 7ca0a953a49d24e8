"""Houses whose price is nearly linear in their features."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

# The range of each feature of the Boston housing data, and its weight in the price.
_FEATURES = [
    (0.0, 90.0, -6.0),
    (0.0, 100.0, 3.0),
    (0.5, 28.0, -1.0),
    (0.0, 1.0, 2.0),
    (0.4, 0.9, -4.0),
    (3.5, 8.8, 14.0),
    (3.0, 100.0, 0.0),
    (1.1, 12.0, -5.0),
    (1.0, 24.0, 2.0),
    (187.0, 711.0, -3.0),
    (12.6, 22.0, -5.0),
    (0.3, 397.0, 2.0),
    (1.7, 38.0, -12.0),
]


@lru_cache(maxsize=1)
def text() -> bytes:
    """Lines of 13 features and a price, as in housing.data; the price is nearly linear in the features."""
    random = np.random.RandomState(13)
    low, high, weight = np.array(_FEATURES).T
    share = random.uniform(0, 1, (506, len(_FEATURES)))
    price = 22.5 + (share - 0.5) @ weight + random.normal(0, 1, 506)
    rows = np.column_stack([low + share * (high - low), price.clip(5, 50)])
    return "\n".join(" ".join(f"{value:9.4f}" for value in row) for row in rows).encode("ascii") + b"\n"
