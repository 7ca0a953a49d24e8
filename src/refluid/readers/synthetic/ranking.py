"""MQ2007: queries and documents whose relevance is nearly linear in their features."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_FEATURES = 46


@lru_cache(maxsize=2)
def letor(part: str) -> bytes:
    """train.txt or test.txt of a LETOR fold: relevance, query, 46 features and a comment per line."""
    weights = np.random.RandomState(61).normal(0, 1, _FEATURES)
    random = np.random.RandomState({"train": 62, "test": 63}[part])
    lines = []
    for query in range({"train": 40, "test": 12}[part]):
        features = random.uniform(0, 1, (random.randint(4, 12), _FEATURES)).round(6)
        scores = (features - 0.5) @ weights + random.normal(0, 0.2, len(features))
        relevance = np.digitize(scores, [0.0, 1.5]) if query % 10 else np.zeros(len(features), int)
        lines += [_line(*row, query) for row in zip(relevance, features, strict=True)]
    return "".join(lines).encode("ascii")


def _line(relevance: int, features: np.ndarray, query: int) -> str:
    numbers = " ".join(f"{number}:{value:.6f}" for number, value in enumerate(features, 1))
    return (
        f"{relevance} qid:{100 + query} {numbers} #docid = GX{query:03d}-{features[0] * 1e6:.0f} inc = 1 prob = 0.5\n"
    )
