"""Rows that are copies of others: what they have changed by, and what has become of the originals.

The first slot of a record holds the original as it is known. See `refluid.runtime.tables.copies`.
"""

from __future__ import annotations

import numpy as np

from refluid.runtime.tables.kernels.index import AT_ONCE, find
from refluid.runtime.tables.kernels.layout import WIDTH
from refluid.runtime.tables.kernels.memory import IDS, VALUES, kernel
from refluid.runtime.tables.kernels.rows import columns_of, elements_of


@kernel(f"int64(int64[::1], {IDS}, int64[::1])")
def find_missing(control, ids, missing):
    """Writes the ids that have no row to ``missing``; returns how many."""
    rows, hashes, count = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.uint64), 0
    for begin in range(0, len(ids), AT_ONCE):
        end = min(begin + AT_ONCE, len(ids))
        find(control, ids, begin, end, rows, hashes)
        for i in range(end - begin):
            if rows[i] < 0:
                missing[count] = ids[begin + i]
                count += 1
    return count


def _changes(control, ids, places, divisor, out):
    """Writes what rows differ by from what is known of the originals, divided, to ``out``, row i to places[i]."""
    width, (weights, known, stride) = control[WIDTH], columns_of(control, out)
    rows, hashes, elements = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.uint64), elements_of(control, out)
    parts = out.dtype.type(divisor)
    for begin in range(0, len(ids), AT_ONCE):
        end = min(begin + AT_ONCE, len(ids))
        find(control, ids, begin, end, rows, hashes)
        for i in range(end - begin):
            base, target = rows[i] * stride, out[places[begin + i]]
            for column in range(width):
                target[column] = 0.0
                if rows[i] >= 0:
                    target[column] = (elements[base + weights + column] - elements[base + known + column]) / parts


def _sent(control, ids, places, changes):
    """Adds changes that were sent to what is known of the originals."""
    width, (_, known, stride) = control[WIDTH], columns_of(control, changes)
    rows, hashes, elements = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.uint64), elements_of(control, changes)
    for begin in range(0, len(ids), AT_ONCE):
        end = min(begin + AT_ONCE, len(ids))
        find(control, ids, begin, end, rows, hashes)
        for i in range(end - begin):
            base, source = rows[i] * stride, changes[places[begin + i]]
            for column in range(width if rows[i] >= 0 else 0):
                elements[base + known + column] += source[column]


def _received(control, ids, places, originals):
    """Adds what originals differ by from what was known of them; from now on they are known. Ids without rows are
    left out."""
    width, (weights, known, stride) = control[WIDTH], columns_of(control, originals)
    rows, hashes, elements = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.uint64), elements_of(control, originals)
    for begin in range(0, len(ids), AT_ONCE):
        end = min(begin + AT_ONCE, len(ids))
        find(control, ids, begin, end, rows, hashes)
        for i in range(end - begin):
            base, source = rows[i] * stride, originals[places[begin + i]]
            for column in range(width if rows[i] >= 0 else 0):
                elements[base + weights + column] += source[column] - elements[base + known + column]
                elements[base + known + column] = source[column]


_CHANGES = f"void(int64[::1], {IDS}, {IDS}, int64, {{0}}[:, ::1])"
_OTHERS = f"void(int64[::1], {IDS}, {IDS}, {VALUES})"
changes32, changes64 = (kernel(_CHANGES.format(kind))(_changes) for kind in ("float32", "float64"))
sent32, sent64 = (kernel(_OTHERS.format(kind))(_sent) for kind in ("float32", "float64"))
received32, received64 = (kernel(_OTHERS.format(kind))(_received) for kind in ("float32", "float64"))
