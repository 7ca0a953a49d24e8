"""Scales of activations from samples of them: where to clip so that rounding loses least."""

from __future__ import annotations

import numpy as np

_BINS = 2048
_LEVELS = 255  # of eight bits with sign


def largest_threshold(samples: list[np.ndarray]) -> float:
    """The largest magnitude: nothing is clipped."""
    return float(max(np.abs(sample).max() for sample in samples))


def entropy_threshold(samples: list[np.ndarray]) -> float:
    """The magnitude at which to clip so that the distribution of rounded values diverges least (Kullback-Leibler).

    Candidates are the upper half of a histogram's bins. What a candidate clips counts as its last bin; rounding merges
    neighbouring bins, which then share their counts evenly, as far as they had any.
    """
    magnitudes = np.abs(np.concatenate([sample.reshape(-1) for sample in samples]))
    counts, edges = np.histogram(magnitudes, _BINS)
    width = edges[1] - edges[0]
    best, best_divergence = 0, np.inf
    for end in range((_BINS - 1) // 2, _BINS):
        if counts[end - 1] == 0:
            continue
        kept = counts[:end]
        clipped = kept.astype("float64")
        clipped[-1] += counts[end:].sum()
        divergence = _divergence(clipped, _rounded(kept))
        if divergence < best_divergence:
            best, best_divergence = end, divergence
    if best == 0:  # every candidate is empty
        return float(magnitudes.max())
    # Fluid counts from zero, not from where the histogram begins. That is near zero, unless values are far from it.
    start = edges[0] if edges[0] > edges[-1] / 8 else 0.0
    return float(start + (best + 0.5) * width)


def _rounded(counts: np.ndarray) -> np.ndarray:
    """What is left of a histogram when its bins are merged into as many as there are levels."""
    together = len(counts) // _LEVELS
    level = np.minimum(np.arange(len(counts)) // together, _LEVELS - 1)
    sums = np.bincount(level, counts, _LEVELS)
    filled = np.bincount(level, counts > 0, _LEVELS)
    return np.where(counts > 0, sums[level] / np.maximum(filled[level], 1), 0.0)


def _divergence(reference: np.ndarray, candidate: np.ndarray) -> float:
    known = (reference > 0) & (candidate > 0)
    p, q = reference[known] / reference.sum(), candidate[known] / candidate.sum()
    return float(np.sum(p * np.log(p / q)))
