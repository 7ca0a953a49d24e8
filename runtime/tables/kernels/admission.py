"""Which ids get rows: those that chance admits, and that were in enough updates.

Ids without rows are counted in a sketch of fixed size (count-min with conservative updates): an id has four counters,
and counts as much as the smallest. After a quarter as many counts as there are counters, all are halved, so that the
sketch does not fill up with ids that are seen once. A count may be too high if all four counters are shared with other
ids (of ids seen for the first time, at most one in six, just before all are halved), and too low by what was halved.
"""

from __future__ import annotations

import numpy as np
from numba import carray, int64, uint8, uint64  # pyright: ignore[reportPrivateImportUsage]

from refluid.runtime.tables.kernels.index import hash_of
from refluid.runtime.tables.kernels.layout import (
    ALL_CHANCE,
    CHANCE,
    CHANCE_KEY,
    MIN_COUNT,
    SKETCH,
    SKETCH_LEFT,
    SKETCH_MASK,
)
from refluid.runtime.tables.kernels.memory import part, pointer_to

_MOST_COUNTED = 255
COUNTERS_PER_COUNT = 4  # before all are halved
_COUNTERS = np.empty(0, np.uint8)


@part
def is_drawn(control, hashed):
    """Whether chance admits an id: the same for every server and every run with the table's key."""
    if control[CHANCE] == ALL_CHANCE:
        return True
    return int64(hash_of(hashed ^ uint64(control[CHANCE_KEY])) >> uint64(32)) < control[CHANCE]


@part
def is_counted_first(control):
    """Whether ids get rows only after several updates."""
    return control[MIN_COUNT] > 1


@part
def _counters(control):
    return carray(pointer_to(control[SKETCH], _COUNTERS), (control[SKETCH_MASK] + 1,))


@part
def _places(control, hashed):
    mask, again = uint64(control[SKETCH_MASK]), hash_of(hashed)
    return hashed & mask, (hashed >> uint64(32)) & mask, again & mask, (again >> uint64(32)) & mask


@part
def _smallest(counters, places):
    return min(min(counters[places[0]], counters[places[1]]), min(counters[places[2]], counters[places[3]]))


@part
def would_arrive(control, hashed):
    """Whether an id gets a row with its next update."""
    if not is_drawn(control, hashed):
        return False
    if not is_counted_first(control):
        return True
    return int64(_smallest(_counters(control), _places(control, hashed))) + 1 >= control[MIN_COUNT]


@part
def has_arrived(control, hashed):
    """Counts an id; whether it was in enough updates by now."""
    counters, places = _counters(control), _places(control, hashed)
    count = _smallest(counters, places)
    if count < uint8(_MOST_COUNTED):
        count = uint8(count + 1)
        for place in places:
            counters[place] = max(counters[place], count)
    control[SKETCH_LEFT] -= 1
    if control[SKETCH_LEFT] <= 0:
        for place in range(control[SKETCH_MASK] + 1):
            counters[place] >>= uint8(1)
        control[SKETCH_LEFT] = (control[SKETCH_MASK] + 1) // COUNTERS_PER_COUNT
    return int64(count) >= control[MIN_COUNT]
