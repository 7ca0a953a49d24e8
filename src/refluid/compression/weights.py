"""Weights as integers of few bits."""

from __future__ import annotations

import numpy as np


def scale_of(weight: np.ndarray, by_channel: bool = False) -> np.ndarray:
    """The largest magnitude of a weight, or of each of its output channels."""
    return np.abs(weight).max(axis=tuple(range(1, weight.ndim)) if by_channel else None)


def as_integers(weight: np.ndarray, scale: np.ndarray | float, bits: int) -> np.ndarray:
    """round(weight / scale * levels), with one scale or one for each output channel; keeps the dtype."""
    levels = 2 ** (bits - 1) - 1
    scale = np.asarray(scale, weight.dtype).reshape(-1, *(1,) * (weight.ndim - 1))
    scale = np.where(scale == 0, 1, scale)  # a channel of zeros
    return np.clip(np.round(weight / scale * levels), -levels, levels).astype(weight.dtype)


def threshold_without(weight: np.ndarray, share: float) -> float:
    """The magnitude below which all but a share of the elements are, up to a 5000th of the largest one."""
    counts, edges = np.histogram(np.abs(weight), 5000, (0, np.abs(weight).max()))
    kept = np.cumsum(counts / counts.sum())
    return float((np.argmax(kept >= 1 - share) + 1) * (edges[1] - edges[0]))
