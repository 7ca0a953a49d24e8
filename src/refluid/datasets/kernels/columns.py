"""The kernel that turns columns, as Arrow has them, into records. `text` says what a record looks like."""

from __future__ import annotations

from refluid.datasets.kernels.compiled import copy, kernel
from refluid.datasets.kernels.counts import write_count
from refluid.datasets.kernels.text import FLOATS


@kernel("int64(int64[::1], int64[:, ::1], int64[::1], int64, int64[::1])")
def pack(values, offsets, kinds, out, places):
    """Writes one record for each row; returns the address behind the last one.

    Args:
      values: the address of the numbers of each slot.
      offsets: where the numbers of each row begin, for each slot.
      out: the address of the first record.
      places: filled with the address of every record.
    """
    for row in range(len(places)):
        places[row] = out
        for slot in range(len(kinds)):
            out = write_count(out, offsets[slot, row + 1] - offsets[slot, row])
        for slot in range(len(kinds)):
            size = 4 if kinds[slot] == FLOATS else 8
            begin, end = offsets[slot, row], offsets[slot, row + 1]
            copy(out, values[slot] + size * begin, size * (end - begin))
            out += size * (end - begin)
    return out
