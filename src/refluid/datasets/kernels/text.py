"""The kernel that turns MultiSlot text into records.

A line is a sample: for every slot, in order, the number of its values and the values. A record is the same in binary:
the counts of all slots (`counts`), then the values of all slots, int64 or float32, without padding.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from refluid.datasets.kernels import NEGLIGIBLE
from refluid.datasets.kernels.compiled import kernel, load_byte, part, store_byte, store_float32, store_int64
from refluid.datasets.kernels.counts import size_of, write_count
from refluid.datasets.kernels.numerals import (
    BAD,
    HARD,
    NEWLINE,
    SPACE,
    TOO_LARGE,
    ZERO,
    ends,
    read_float,
    read_id,
    skip_blanks,
)

IDS, FLOATS, WORD = range(3)  # kinds of slots; of a word, a hash is kept
SKIP_MALFORMED, DROP_ZEROS = 1, 2  # options, to be combined

# What is wrong with a line.
FINE, LINE_ENDS, NO_COUNT, ZERO_COUNT, WIDTH, FEW_VALUES, NO_ID, NO_FLOAT, LARGE_ID, MANY_HARD, NO_WORD = range(11)


class Report(IntEnum):
    """Where the kernel leaves what it returns. Positions are addresses, of the text or of the records."""

    RECORDS, RECORDS_END, TEXT, LINES, PROBLEM, SLOT, PLACE, DETAIL, HARD, LONGER, SKIPPED = range(11)


@part
def _read_count(p):
    """(problem, count, address behind it)"""
    c = load_byte(p)
    if c == NEWLINE:
        return LINE_ENDS, 0, p
    if load_byte(p + 1) == SPACE and c > ZERO and c <= ZERO + 9:  # nearly always
        return FINE, c - ZERO, p + 1
    begin, count = p, 0
    while c >= ZERO and c <= ZERO + 9:
        count = count * 10 + (c - ZERO)
        p += 1
        c = load_byte(p)
    if p == begin or p - begin > 9 or not ends(c):
        return NO_COUNT, 0, p
    return (ZERO_COUNT if count == 0 else FINE), count, p


@part
def _read_ids(p, end, count, q, options):
    """(problem, address behind the ids, address of the last one, how many were kept, address behind them)"""
    kept, place = 0, p
    for i in range(count):
        p = skip_blanks(p)
        place = p
        value, p, how = read_id(p, end)
        if how != 0:
            if load_byte(place) == NEWLINE:
                return FEW_VALUES, p, place, i, q
            return (LARGE_ID if how == TOO_LARGE else NO_ID), p, place, i, q
        store_int64(q, value)
        keep = value != 0 or not options & DROP_ZEROS
        kept += keep
        q += 8 * keep
    return FINE, p, place, kept, q


@part
def _read_floats(p, end, count, q, options, hard, hards):
    """The same as `_read_ids`, and the number of hard numbers."""
    kept, place = 0, p
    for i in range(count):
        p = skip_blanks(p)
        place = p
        value, p, how = read_float(p, end)
        if how == BAD:
            return (FEW_VALUES if load_byte(place) == NEWLINE else NO_FLOAT), p, place, i, q, hards
        if options & DROP_ZEROS and abs(np.float32(value)) < NEGLIGIBLE:
            continue
        if how == HARD:
            if hards == len(hard):
                return MANY_HARD, p, place, i, q, hards
            hard[hards, 0], hard[hards, 1], hard[hards, 2] = place, p, q
            hards += 1
        store_float32(q, np.float32(value))
        kept += 1
        q += 4
    return FINE, p, place, kept, q, hards


@part
def _read_word(p, count, q):
    """The same as `_read_ids`, of a word, whose FNV-1a hash is written."""
    p = skip_blanks(p)
    place, code = p, np.uint64(0xCBF29CE484222325)
    c = load_byte(p)
    while not ends(c):
        code = (code ^ np.uint64(c)) * np.uint64(0x100000001B3)
        p += 1
        c = load_byte(p)
    if count != 1 or p == place:
        return NO_WORD, p, place, 0, q
    store_int64(q, np.int64(code))
    return FINE, p, place, 1, q + 8


@part
def _write_counts(counts, out, end, hard, hards, line_hards):
    """Writes counts before the values, which move because some take more than a byte; returns the new end."""
    size = 0
    for count in counts:
        size += size_of(count)
    shift = size - len(counts)
    for p in range(end - 1, out + len(counts) - 1, -1):
        store_byte(p + shift, load_byte(p))
    for h in range(hards, line_hards):
        hard[h, 2] += shift
    for count in counts:
        out = write_count(out, count)
    return end + shift


@kernel(
    "void(int64, int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64,"
    " int64[::1])"
)
def parse(text, text_end, out, kinds, widths, dense, counts, places, hard, options, report):
    """Parses whole lines, until the end of the text, a malformed line, or more hard numbers than there is space for.

    Args:
      out: the address of the first record. There must be room for 4 times the text, and a byte per slot.
      places: filled with the address of every record.
      hard: filled with numbers that Python must read: begin and end of their text, address of their value.
      counts: space for one count per slot.
    """
    records, lines, longer, skipped, hards = 0, 0, 0, 0, 0
    slots = len(kinds)
    problem = FINE
    while text < text_end:
        p, q, line_hards = text, out + slots, hards
        slot, place, detail, bits = 0, text, 0, 0
        while slot < slots:
            p = skip_blanks(p)
            place = p
            problem, count, p = _read_count(p)
            detail = count
            if problem != FINE:
                break
            if widths[slot] > 1 and count % widths[slot] != 0:  # a division is slow
                problem = WIDTH
                break
            how = options & ~DROP_ZEROS if dense[slot] else options
            if kinds[slot] == IDS:
                problem, p, place, kept, q = _read_ids(p, text_end, count, q, how)
            elif kinds[slot] == WORD:
                problem, p, place, kept, q = _read_word(p, count, q)
            else:
                problem, p, place, kept, q, line_hards = _read_floats(p, text_end, count, q, how, hard, line_hards)
            if problem != FINE:
                break
            counts[slot] = kept
            store_byte(out + slot, kept)
            bits |= kept
            slot += 1
        if problem == FINE:
            p = skip_blanks(p)
            longer += load_byte(p) != NEWLINE
            places[records] = out
            records += 1
            out = q if bits < 128 else _write_counts(counts, out, q, hard, hards, line_hards)
            hards = line_hards
        elif problem != MANY_HARD and options & SKIP_MALFORMED:
            problem, p = FINE, place
            skipped += 1
        else:
            report[Report.SLOT], report[Report.PLACE], report[Report.DETAIL] = slot, place, detail
            break
        while load_byte(p) != NEWLINE:
            p += 1
        text = p + 1
        lines += 1
    report[Report.RECORDS], report[Report.RECORDS_END] = records, out
    report[Report.TEXT], report[Report.LINES], report[Report.PROBLEM] = text, lines, problem
    report[Report.HARD], report[Report.LONGER], report[Report.SKIPPED] = hards, longer, skipped
