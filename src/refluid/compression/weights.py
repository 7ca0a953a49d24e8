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
