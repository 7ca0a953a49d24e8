"""Ids of a batch: made unique on their way to servers, spread over segments, and their gradients summed."""

from __future__ import annotations

from numba import int64, uint64  # pyright: ignore[reportPrivateImportUsage]

from refluid.runtime.tables.kernels.index import hash_of
from refluid.runtime.tables.kernels.memory import IDS, VALUES, kernel

# Bits of a hash: the lowest 32 choose a place in an index, and the highest are compared there. From these on they
# choose the shard and, independently of it, the segment of the server that holds the shard.
SHARD_SHIFT, SEGMENT_SHIFT = 36, 52


@kernel(f"int64({IDS}, int64[::1], int64[::1], int64[::1], int64)")
def unique(ids, found, inverse, table, stamp):
    """The different ids in the order of their first occurrence, in ``found``, and for each id its number among them.

    ``table`` is memory of twice a power of two words, more than twice as many as ids; ``stamp`` differs from call to
    call, so that it need not be cleared.
    """
    mask, count = uint64(len(table) // 2 - 1), int64(0)
    for i in range(len(ids)):
        place = hash_of(ids[i]) & mask
        while True:
            entry = table[2 * place]
            if entry >> 32 != stamp:
                table[2 * place] = (stamp << 32) | count
                table[2 * place + 1] = ids[i]
                found[count] = ids[i]
                inverse[i] = count
                count += 1
                break
            if table[2 * place + 1] == ids[i]:
                inverse[i] = entry & 0xFFFFFFFF
                break
            place = (place + uint64(1)) & mask
    return count


def _sum_rows(inverse, values, sums):
    """Adds the rows of values to those of ``sums`` that inverse names."""
    width = values.shape[1]
    for i in range(len(inverse)):
        target, source = sums[inverse[i]], values[i]
        for column in range(width):
            target[column] += source[column]


def _spread_rows(inverse, rows, out):
    """out[i] = rows[inverse[i]]."""
    width = rows.shape[1]
    for i in range(len(inverse)):
        target, source = out[i], rows[inverse[i]]
        for column in range(width):
            target[column] = source[column]


_ROWS = f"void({IDS}, {VALUES}, " + "{0}[:, ::1])"
sum_rows32, sum_rows64 = (kernel(_ROWS.format(kind))(_sum_rows) for kind in ("float32", "float64"))
spread_rows32, spread_rows64 = (kernel(_ROWS.format(kind))(_spread_rows) for kind in ("float32", "float64"))


@kernel(f"void({IDS}, int64, {IDS}, int64[::1], int64[::1], int64[::1])")
def partition(ids, shift, parts, order, grouped, bounds):
    """Groups ids by the part that their shard, or segment, belongs to, in their order.

    ``parts`` names the part of each, a power of two of them, which is chosen by the bits of the hash from ``shift`` on.
    Writes the positions of ids, part by part, the ids themselves, and where each part begins and ends.
    """
    mask = uint64(len(parts) - 1)
    bounds[:] = 0
    for i in range(len(ids)):
        order[i] = parts[int64((hash_of(ids[i]) >> uint64(shift)) & mask)]
        bounds[order[i] + 1] += 1
    for part in range(1, len(bounds)):
        bounds[part] += bounds[part - 1]
    places = bounds.copy()
    chosen = order.copy()
    for i in range(len(ids)):
        place = places[chosen[i]]
        places[chosen[i]] = place + 1
        order[place], grouped[place] = i, ids[i]


@kernel(f"void({IDS}, int64, int64[::1])")
def shards_of(ids, shards, out):
    """The shard of each id."""
    mask = uint64(shards - 1)
    for i in range(len(ids)):
        out[i] = int64((hash_of(ids[i]) >> uint64(SHARD_SHIFT)) & mask)
