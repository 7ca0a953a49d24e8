"""The counts of a record: 7 bits per byte, lowest first; the highest bit says that more follow."""

from __future__ import annotations

from refluid.datasets.kernels.compiled import load_byte, part, store_byte


@part
def read_count(p):
    """(count, address behind it)"""
    c = load_byte(p)
    p += 1
    count, shift = c & 127, 7
    while c > 127:
        c = load_byte(p)
        p += 1
        count |= (c & 127) << shift
        shift += 7
    return count, p


@part
def write_count(p, count):
    """Writes a count; returns the address behind it."""
    while count > 127:
        store_byte(p, count & 127 | 128)
        count >>= 7
        p += 1
    store_byte(p, count)
    return p + 1


@part
def size_of(count):
    """How many bytes a count takes."""
    size = 1
    while count > 127:
        count >>= 7
        size += 1
    return size
