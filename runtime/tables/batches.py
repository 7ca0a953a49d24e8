"""Ids and rows of a batch: ids made unique and put back in place, gradients of the same id summed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from refluid.runtime.tables.kernels import merging

_SUM = {np.dtype(np.float32): merging.sum_rows32, np.dtype(np.float64): merging.sum_rows64}
_SPREAD = {np.dtype(np.float32): merging.spread_rows32, np.dtype(np.float64): merging.spread_rows64}


class _Scratch(threading.local):
    """Memory that a thread finds different ids with; it is not cleared between calls, but stamped."""

    def __init__(self) -> None:
        self.table, self.stamp = np.zeros(256, np.int64), 0

    def of(self, count: int) -> tuple[np.ndarray, int]:
        """Memory for so many ids, and a stamp that it does not have yet."""
        size = 1 << max(7, (2 * count).bit_length())
        if len(self.table) < 2 * size:
            self.table, self.stamp = np.zeros(2 * size, np.int64), 0
        self.stamp = self.stamp % ((1 << 31) - 1) + 1
        if self.stamp == 1:
            self.table[:] = 0
        return self.table[: 2 * size], self.stamp


_scratch = _Scratch()


def unique(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different ids, in the order in which they come first, and for each id its number among them."""
    ids = np.ascontiguousarray(ids)
    found, inverse = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    count = merging.unique(ids, found, inverse, *_scratch.of(len(ids)))
    return found[:count], inverse


def merged(ids: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different ids, and the sums of the values of each, added in their order."""
    found, inverse = unique(ids)
    if len(found) == len(ids):
        return np.ascontiguousarray(ids), np.ascontiguousarray(values)
    sums = np.zeros((len(found), *values.shape[1:]), values.dtype)
    if values.dtype in _SUM:
        flat = values.reshape(len(ids), -1)
        _SUM[values.dtype](inverse, np.ascontiguousarray(flat), sums.reshape(len(found), flat.shape[1]))
    else:
        np.add.at(sums, inverse, values)
    return found, sums


def spread(rows: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """The rows of different ids for all ids; the inverse of `unique`."""
    if len(rows) == len(inverse):
        return rows
    if rows.dtype not in _SPREAD:
        return rows[inverse]
    out = np.empty((len(inverse), *rows.shape[1:]), rows.dtype)
    flat = out.reshape(len(inverse), -1)
    _SPREAD[rows.dtype](inverse, np.ascontiguousarray(rows).reshape(len(rows), flat.shape[1]), flat)
    return out


def owners(heights: Sequence[int]) -> np.ndarray:
    """The part that each shard belongs to, for parts of so many shards each."""
    return np.repeat(np.arange(len(heights), dtype=np.int64), heights)


def shared_out(ids: np.ndarray, parts: np.ndarray, count: int) -> list[np.ndarray]:
    """The positions of the ids that belong to each of ``count`` parts, by the part of each shard."""
    order, grouped, bounds = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64), np.empty(count + 1, np.int64)
    merging.partition(np.ascontiguousarray(ids), merging.SHARD_SHIFT, parts, order, grouped, bounds)
    return [order[begin:end] for begin, end in pairwise(bounds.tolist())]
