"""The index of a segment: open addressing over entries of 4 bytes, with some bits of the hash in each entry.

An index of 2^n entries has fewer than 2^n rows, so n bits of an entry name the row, and the others are of the hash.

Rows are found in three passes over a few ids at a time, so that the processor waits for many cache lines at once: the
entry that an id may be at, the record that the entry points to, and the comparison of ids. A full index is replaced by
one of twice the size, a little with every batch: until that is done, what is not in the new one is looked for in the
old one.
"""

from __future__ import annotations

import numpy as np
from numba import carray, int64, uint8, uint32, uint64  # pyright: ignore[reportPrivateImportUsage]

from refluid.runtime.tables.kernels.layout import (
    CAPACITY,
    COPIED,
    DEAD,
    FIRST,
    FREE,
    FREED,
    FROZEN,
    HEADER,
    ID,
    INDEX,
    INDEX_MASK,
    IS_SAVED,
    MARKS,
    MIGRATED,
    OLD_INDEX,
    OLD_MASK,
    RECORDS,
    SAVED,
    SAVED_CAPACITY,
    SAVED_USED,
    STALE,
    USED,
    VERSION,
    WANTED,
    WORDS,
)
from refluid.runtime.tables.kernels.memory import kernel, part, pointer_to, prefetch

AT_ONCE = 64  # ids that are looked for together
_LINE = 64  # bytes
_ENTRIES, _INTS, _MARKS = np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.uint8)


@part
def hash_of(id):
    """A 64-bit hash (the finalizer of MurmurHash3)."""
    x = uint64(id)
    x ^= x >> uint64(33)
    x *= uint64(0xFF51AFD7ED558CCD)
    x ^= x >> uint64(33)
    x *= uint64(0xC4CEB9FE1A85EC53)
    x ^= x >> uint64(33)
    return x


@part
def _tag(hashed, mask):
    # The top bits, as many as the number of a row leaves; the lowest choose the entry.
    return uint32(hashed >> uint64(32)) & uint32(~int64(mask))


@part
def _row_in(entry, mask):
    return int64(entry & uint32(mask)) - 1


@part
def _tag_in(entry, mask):
    return entry & uint32(~int64(mask))


@part
def _entries(address, mask):
    return carray(pointer_to(address, _ENTRIES), (mask + 1,))


@part
def record_ids(control):
    """The ids of records, ``WORDS // 2`` apart."""
    return carray(pointer_to(control[RECORDS], _INTS), (control[CAPACITY] * control[WORDS] // 2,))


@part
def record_words(control):
    """The headers of records as unsigned words."""
    return carray(pointer_to(control[RECORDS], _ENTRIES), (control[CAPACITY] * control[WORDS],))


@part
def _probe(control, entries, mask, hashed, id):
    """The row of an id in one index, or -1. A record that is free keeps its last id, and is told by its version."""
    ids, words, stride = record_ids(control), record_words(control), control[WORDS]
    place, tag = hashed & uint64(mask), _tag(hashed, mask)
    while True:
        entry = entries[place]
        if entry == uint32(0):
            return int64(-1)
        if _tag_in(entry, mask) == tag:
            row = _row_in(entry, mask)
            if ids[row * stride // 2 + ID] == id and words[row * stride + control[HEADER] + VERSION] != uint32(DEAD):
                return row
        place = (place + uint64(1)) & uint64(mask)


@part
def _has_entry(entries, mask, hashed, row):
    """Whether an index points to a row by this hash."""
    place, wanted = hashed & uint64(mask), _tag(hashed, mask) | uint32(row + 1)
    while entries[place] != uint32(0):
        if entries[place] == wanted:
            return True
        place = (place + uint64(1)) & uint64(mask)
    return False


@part
def find_one(control, id, hashed):
    """The row of an id, or -1."""
    row = _probe(control, _entries(control[INDEX], control[INDEX_MASK]), control[INDEX_MASK], hashed, id)
    if row < 0 and control[OLD_INDEX] != 0:
        row = _probe(control, _entries(control[OLD_INDEX], control[OLD_MASK]), control[OLD_MASK], hashed, id)
    return row


@part
def find(control, ids, begin, end, rows, hashes):
    """The rows of ids[begin:end], at most `AT_ONCE`, in ``rows``; -1 for ids that have none. Prefetches records."""
    if control[INDEX] == 0:
        for i in range(begin, end):
            row = ids[i] - control[FIRST]
            rows[i - begin] = row if 0 <= row < control[USED] else -1
            prefetch(control[RECORDS] + row * control[WORDS] * 4)
        return
    mask, stride, size = uint64(control[INDEX_MASK]), control[WORDS] // 2, control[WORDS] * 4
    entries, known, words = _entries(control[INDEX], control[INDEX_MASK]), record_ids(control), record_words(control)
    for i in range(begin, end):
        hashed = hash_of(ids[i])
        hashes[i - begin] = hashed
        prefetch(control[INDEX] + int64(hashed & mask) * 4)
    for i in range(end - begin):
        place, tag = hashes[i] & mask, _tag(hashes[i], mask)
        while True:
            entry = entries[place]
            if entry == uint32(0) or _tag_in(entry, mask) == tag:
                break
            place = (place + uint64(1)) & mask
        rows[i] = _row_in(entry, mask)
        if rows[i] >= 0:
            begins = control[RECORDS] + rows[i] * size
            for line in range(0, size, _LINE):
                prefetch(begins + line)
    for i in range(end - begin):
        row = rows[i]
        version = row * control[WORDS] + control[HEADER] + VERSION
        if row >= 0 and known[row * stride + ID] == ids[begin + i] and words[version] != uint32(DEAD):
            continue
        if row >= 0 or control[OLD_INDEX] != 0:  # the bits of the hash were those of another id
            rows[i] = find_one(control, ids[begin + i], hashes[i])


@part
def _put(entries, mask, hashed, row):
    place = hashed & uint64(mask)
    while entries[place] != uint32(0):
        place = (place + uint64(1)) & uint64(mask)
    entries[place] = _tag(hashed, mask) | uint32(row + 1)


@part
def add(control, id, hashed):
    """A record for an id that has none, or -1 if there is no room for it. The caller fills it."""
    ids, words, stride = record_ids(control), record_words(control), control[WORDS] // 2
    entries, mask = _entries(control[INDEX], control[INDEX_MASK]), control[INDEX_MASK]
    if (control[USED] + control[STALE] + 1) * 5 > (mask + 1) * 4:
        return int64(-1)
    if control[FREE] != 0:
        row = control[FREE] - 1
        if not save(control, row):
            return int64(-1)
        control[FREE] = int64(words[row * control[WORDS] + control[HEADER]])  # its first weight points to the next one
        control[FREED] -= 1
        if ids[row * stride + ID] == id and _has_entry(entries, mask, hashed, row):
            return row  # its old entry still points to it
        control[STALE] += 1
    elif control[USED] < control[CAPACITY]:
        row = control[USED]
        control[USED] += 1
    else:
        return int64(-1)
    ids[row * stride + ID] = id
    _put(entries, mask, hashed, row)
    return row


@part
def free(control, row):
    """Gives up the record of a row."""
    words, header = record_words(control), row * control[WORDS] + control[HEADER]
    words[header + VERSION] = uint32(DEAD)
    words[header] = uint32(control[FREE])
    control[FREE] = row + 1
    control[FREED] += 1


@part
def save(control, row):
    """Keeps a record as it is for the snapshot that is being made, if there is one; False if there is no room."""
    if control[FROZEN] == 0 or row < control[COPIED] or row >= control[FROZEN]:
        return True
    marks = carray(pointer_to(control[MARKS], _MARKS), (control[CAPACITY],))
    if marks[row] & uint8(IS_SAVED):
        return True
    if control[WANTED] and not marks[row] & uint8(control[WANTED]):
        marks[row] |= uint8(IS_SAVED)
        return True
    if control[SAVED_USED] == control[SAVED_CAPACITY]:
        return False
    size, words = control[WORDS], record_words(control)
    saved = carray(pointer_to(control[SAVED], _ENTRIES), (control[SAVED_CAPACITY] * (size + 1),))
    place = control[SAVED_USED] * (size + 1)
    for word in range(size):
        saved[place + word] = words[row * size + word]
    saved[place + size] = uint32(row)
    control[SAVED_USED] += 1
    marks[row] |= uint8(IS_SAVED)
    return True


@kernel("int64(int64[::1], int64)")
def migrate(control, count):
    """Moves up to ``count`` entries of the old index to the new one; returns how many are left."""
    old, mask = _entries(control[OLD_INDEX], control[OLD_MASK]), control[OLD_MASK]
    new, ids, words = _entries(control[INDEX], control[INDEX_MASK]), record_ids(control), record_words(control)
    stride, begin = control[WORDS] // 2, control[MIGRATED]
    end = min(begin + count, mask + 1)
    for place in range(begin, end):
        if place + 16 < end and old[place + 16] != uint32(0):
            prefetch(control[RECORDS] + _row_in(old[place + 16], mask) * control[WORDS] * 4)
        entry = old[place]
        if entry == uint32(0):
            continue
        row = _row_in(entry, mask)
        hashed = hash_of(ids[row * stride + ID])
        if _tag(hashed, mask) != _tag_in(entry, mask):
            continue  # stale: the record belongs to another id
        if words[row * control[WORDS] + control[HEADER] + VERSION] == uint32(DEAD):
            continue
        if _probe(control, new, control[INDEX_MASK], hashed, ids[row * stride + ID]) < 0:
            _put(new, control[INDEX_MASK], hashed, row)
    control[MIGRATED] = end
    return mask + 1 - end
