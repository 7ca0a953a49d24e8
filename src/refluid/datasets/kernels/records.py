"""The kernels that read records: their sizes, copies of some, and the arrays of a batch.

`text` says what a record looks like. These kernels trust what they read.
"""

from __future__ import annotations

import numpy as np

from refluid.datasets.kernels.compiled import (
    copy,
    kernel,
    load_byte,
    load_int32,
    load_int64,
    part,
    store_int32,
    store_int64,
)
from refluid.datasets.kernels.counts import read_count, write_count
from refluid.datasets.kernels.text import FLOATS


@part
def _end_of(p, kinds):
    """The address behind a record."""
    size = 0
    for kind in kinds:
        count, p = read_count(p)
        size += count * (4 if kind == FLOATS else 8)
    return p + size


@kernel("int64(int64, int64, int64[::1], int64[::1])")
def find(begin, end, kinds, places):
    """Fills in the addresses of records that lie one after the other; returns the address behind them.

    Stops behind ``end``: these records may come from elsewhere.
    """
    for i in range(len(places)):
        places[i] = begin
        size = 0
        for kind in kinds:
            p = begin
            while p < end and load_byte(p) > 127:
                p += 1
            if p >= end or p - begin > 4:  # a count of five bytes is one of a billion values
                return end + 1
            count, begin = read_count(begin)
            size += count * (4 if kind == FLOATS else 8)
        begin += size
    return begin


@kernel("int64(int64[::1], int64[::1], int64[::1])")
def measure(places, kinds, sizes):
    """Fills in the size of each record in bytes; returns their sum."""
    total = 0
    for i in range(len(places)):
        sizes[i] = _end_of(places[i], kinds) - places[i]
        total += sizes[i]
    return total


@kernel("void(int64[::1], int64[::1], int64)")
def pack(places, sizes, out):
    """Copies records to ``out``, one after the other."""
    for i in range(len(places)):
        copy(out, places[i], sizes[i])
        out += sizes[i]


@kernel("void(int64[::1], int64[::1], int64[:, ::1], int64[::1])")
def count(places, kinds, offsets, values):
    """Fills in the offsets of each slot's sequences, and the address of each record's values.

    A slot without values counts as one, because sequences are not empty in Fluid.
    """
    for slot in range(len(kinds)):
        offsets[slot, 0] = 0
    for i in range(len(places)):
        p = places[i]
        for slot in range(len(kinds)):
            number, p = read_count(p)
            offsets[slot, i + 1] = offsets[slot, i] + max(number, 1)
        values[i] = p


@kernel("void(int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[::1])")
def gather(places, values, kinds, offsets, outs):
    """Copies the values of each slot to its place in ``outs``; a slot without values gets a 0."""
    for i in range(len(places)):
        p, q = places[i], values[i]
        for slot in range(len(kinds)):
            number, p = read_count(p)
            if kinds[slot] != FLOATS:
                out = outs[slot] + 8 * offsets[slot, i]
                if number == 0:
                    store_int64(out, 0)
                for _ in range(number):
                    store_int64(out, load_int64(q))
                    out, q = out + 8, q + 8
            else:
                out = outs[slot] + 4 * offsets[slot, i]
                if number == 0:
                    store_int32(out, 0)
                for _ in range(number):
                    store_int32(out, load_int32(q))
                    out, q = out + 4, q + 4


@kernel("void(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[::1])")
def mix(places, others, kinds, from_others, out, new_places):
    """Writes records that take some slots from other records, and fills in where they are.

    ``others`` are the same records in another order, so the new ones need as much memory as the old.
    """
    for i in range(len(places)):
        p, q = places[i], others[i]
        new_places[i] = out
        for slot in range(len(kinds)):
            number, p = read_count(p)
            other, q = read_count(q)
            out = write_count(out, other if from_others[slot] else number)
        h, g = places[i], others[i]
        for slot in range(len(kinds)):
            number, h = read_count(h)
            other, g = read_count(g)
            size = 4 if kinds[slot] == FLOATS else 8
            if from_others[slot]:
                copy(out, q, other * size)
                out += other * size
            else:
                copy(out, p, number * size)
                out += number * size
            p += number * size
            q += other * size


@kernel("void(int64[::1], int64[::1], int64[::1])")
def first_ids(places, kinds, ids):
    """Fills in the first value of each record, which is an id."""
    for i in range(len(places)):
        p = places[i]
        for _ in kinds:
            _, p = read_count(p)
        ids[i] = load_int64(p)


@part
def _find_slot(p, kinds, slot):
    """(number of values of a slot, their address)"""
    start, found = 0, 0
    for i in range(len(kinds)):
        number, p = read_count(p)
        if i < slot:
            start += number * (4 if kinds[i] == FLOATS else 8)
        elif i == slot:
            found = number
    return found, p + start


@part
def _choose(places, begin, end, kinds, takes_last, chosen):
    """Which record of a group each slot is taken from; whether two records have values for the same one."""
    for slot in range(len(kinds)):
        chosen[slot] = end - 1
        for i in range(begin, end - 1):
            number, _ = _find_slot(places[i], kinds, slot)
            if number == 0 or takes_last[slot]:
                continue
            if chosen[slot] != end - 1 or _find_slot(places[end - 1], kinds, slot)[0] > 0:
                return False
            chosen[slot] = i
    return True


@kernel("int64(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[::1])")
def merge(places, starts, kinds, takes_last, out, new_places):
    """Writes one record for each group of records that have values for different slots; returns how many.

    Args:
      starts: where groups begin in ``places``, and the end of the last.
      takes_last: slots that all records have, and that are taken from the last one.
    """
    written = 0
    chosen = np.empty(len(kinds), np.int64)
    for group in range(len(starts) - 1):
        if not _choose(places, starts[group], starts[group + 1], kinds, takes_last, chosen):
            continue
        new_places[written] = out
        written += 1
        for slot in range(len(kinds)):
            out = write_count(out, _find_slot(places[chosen[slot]], kinds, slot)[0])
        for slot in range(len(kinds)):
            number, values = _find_slot(places[chosen[slot]], kinds, slot)
            size = number * (4 if kinds[slot] == FLOATS else 8)
            copy(out, values, size)
            out += size
    return written
