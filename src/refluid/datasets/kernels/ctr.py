"""The kernels that turn the lines of a CTR reader into MultiSlot lines. Numbers are copied as text.

A csv line has fields between blanks, each of numbers between commas. An svm line has a label, and a word ``slot:id``
for every id, in any order.
"""

from __future__ import annotations

import numpy as np

from refluid.datasets.kernels.compiled import copy, kernel, load_byte, part, store_byte
from refluid.datasets.kernels.numerals import NEWLINE, SPACE, ZERO, skip_blanks

COMMA, COLON = ord(","), ord(":")
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@part
def _end_of_word(p):
    while load_byte(p) > SPACE:
        p += 1
    return p


@part
def _write_number(p, number):
    """Writes a number and a space; returns the address behind them."""
    size, rest = 1, number // 10
    while rest > 0:
        size, rest = size + 1, rest // 10
    for place in range(p + size - 1, p - 1, -1):
        store_byte(place, ZERO + number % 10)
        number //= 10
    store_byte(p + size, SPACE)
    return p + size + 1


@part
def _write_word(p, begin, end):
    copy(p, begin, end - begin)
    store_byte(p + end - begin, SPACE)
    return p + end - begin + 1


@part
def _count(begin, end):
    """How many numbers a list has; 0 if there is nothing before or behind a comma."""
    count, before = 1, COMMA
    for place in range(begin, end):
        c = load_byte(place)
        if c == COMMA and before == COMMA:
            return 0
        count += c == COMMA
        before = c
    return count if before != COMMA else 0


@part
def _write_list(p, begin, end, count):
    """Writes the numbers of a list and how many there are."""
    p = _write_number(p, count)
    shift = p - begin
    for place in range(begin, end):
        c = load_byte(place)
        store_byte(place + shift, SPACE if c == COMMA else c)
    store_byte(end + shift, SPACE)
    return end + shift + 1


@kernel("int64(int64, int64, int64, int64[::1], int64[:, ::1], int64[::1])")
def from_csv(text, text_end, out, fields, words, bad):
    """Turns whole csv lines into MultiSlot lines; returns the address behind them.

    Args:
      fields: the number of the field of each slot. One that a line does not have becomes a slot of 0 values.
      words: space for the begin and end of as many fields as are used.
      bad: filled with the address of a field that is no list, if there is one.
    """
    while text < text_end:
        found = 0
        text = skip_blanks(text)
        while load_byte(text) != NEWLINE:
            end = _end_of_word(text)
            if found < len(words):
                words[found, 0], words[found, 1] = text, end
            found += 1
            text = skip_blanks(end)
        for field in fields:
            if field >= found:
                out = _write_number(out, 0)
                continue
            begin, end = words[field, 0], words[field, 1]
            count = _count(begin, end)
            if count == 0:
                bad[0] = begin
                return out
            out = _write_list(out, begin, end, count)
        store_byte(out, NEWLINE)
        text, out = text + 1, out + 1
    return out


@part
def _slot_of(begin, end, hashes):
    """The place of a name among sorted hashes, -1 if it is not there."""
    value = _FNV_START
    for place in range(begin, end):
        value = (value ^ np.uint64(load_byte(place))) * _FNV_PRIME
    place = np.searchsorted(hashes, value)
    return place if place < len(hashes) and hashes[place] == value else -1


@kernel("int64(int64, int64, int64, uint64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[::1])")
def from_svm(text, text_end, out, hashes, order, lists, words, bad):
    """Turns whole svm lines into MultiSlot lines; returns the address behind them.

    A slot without ids becomes a single 0. Slots that are not asked for are left out.

    Args:
      hashes: of the names of the slots, sorted.
      order: the place of each slot's hash among them.
      lists: space for the count, first and last word of each slot.
      words: space for begin, end and next word of its slot, for every word of a line.
      bad: filled with the address of a word that is no slot and id, if there is one, or of a line without a label.
    """
    while text < text_end:
        lists[:, 0] = 0
        label = skip_blanks(text)
        label_end = _end_of_word(label)
        if label == label_end:
            bad[0] = label
            return out
        text, found = skip_blanks(label_end), 0
        while load_byte(text) != NEWLINE:
            end, colon = _end_of_word(text), text
            while colon < end and load_byte(colon) != COLON:
                colon += 1
            if colon >= end - 1:
                bad[0] = text
                return out
            slot = _slot_of(text, colon, hashes)
            if slot >= 0:
                words[found, 0], words[found, 1] = colon + 1, end
                if lists[slot, 0] == 0:
                    lists[slot, 1] = found
                else:
                    words[lists[slot, 2], 2] = found
                lists[slot, 0] += 1
                lists[slot, 2] = found
                found += 1
            text = skip_blanks(end)
        for slot in order:
            count, word = lists[slot, 0], lists[slot, 1]
            out = _write_number(out, max(count, 1))
            if count == 0:
                out = _write_number(out, 0)
            for _ in range(count):
                out = _write_word(out, words[word, 0], words[word, 1])
                word = words[word, 2]
        out = _write_word(_write_number(out, 1), label, label_end)
        store_byte(out, NEWLINE)
        text, out = text + 1, out + 1
    return out
