"""Rows of a segment: read, created, updated, replaced and given up, many with one call.

Kernels that may run out of room return how many rows they are done with; the caller makes room and calls again.
"""

from __future__ import annotations

import numpy as np
from numba import carray, float32, int64, uint8, uint32  # pyright: ignore[reportPrivateImportUsage]

from refluid.runtime.tables.kernels.admission import has_arrived, is_counted_first, is_drawn, would_arrive
from refluid.runtime.tables.kernels.beginning import fill
from refluid.runtime.tables.kernels.halves import pack, pack_at_random, unpack
from refluid.runtime.tables.kernels.index import (
    AT_ONCE,
    add,
    find,
    find_one,
    free,
    hash_of,
    record_ids,
    record_words,
    save,
)
from refluid.runtime.tables.kernels.layout import (
    CAPACITY,
    CHANGED,
    COUNT,
    DEAD,
    FIRST,
    HEADER,
    ID,
    INDEX,
    IS_SAVED,
    MARKS,
    NATIVE,
    PRECISION,
    RECORDS,
    SLOTS,
    UNSAVED,
    VERSION,
    WIDTH,
    WORDS,
)
from refluid.runtime.tables.kernels.memory import (
    IDS,
    VALUES,
    bits_as_float32,
    float32_as_bits,
    kernel,
    part,
    pointer_to,
    prefetch,
)
from refluid.runtime.tables.kernels.missed import MAP_SIZE, RATES, catch_up
from refluid.runtime.tables.kernels.optimizers import ADD, HIGHEST, KIND, LOWEST, SCALE, A, B, decay, drifts, step

_MARKS = np.empty(0, np.uint8)


@part
def elements_of(control, like):
    """All memory of records as elements like those of an array."""
    words = control[CAPACITY] * control[WORDS]
    return carray(pointer_to(control[RECORDS], like), (words * 4 // like.itemsize,))


@part
def columns_of(control, like):
    """Where weights and slots begin in a record, and the distance of records, in elements."""
    size = like.itemsize
    weights = control[HEADER] * 4 // size
    packed = (control[WIDTH] + 1) // 2 * 4 // size  # two weights of 16 bits in a word
    slots = weights + (control[WIDTH] if control[PRECISION] == NATIVE else packed)
    return weights, slots, control[WORDS] * 4 // size


@part
def _create(control, id, hashed, beginning, fills, like, scratch):
    """A new row with the values that it begins with, or -1 if there is no room."""
    row = add(control, id, hashed)
    if row < 0:
        return row
    _begin(control, row, id, beginning, fills, like, scratch)
    return row


@part
def _begin(control, row, id, beginning, fills, like, scratch):
    width = control[WIDTH]
    elements, (weights, slots, stride) = elements_of(control, like), columns_of(control, like)
    fill(scratch, width, id, beginning)
    if control[PRECISION] == NATIVE:
        for column in range(width):
            elements[row * stride + weights + column] = scratch[column]
    else:
        pack(control, row, scratch)
    for slot in range(control[SLOTS]):
        for column in range(width):
            elements[row * stride + slots + slot * width + column] = fills[slot]
    words = record_words(control)
    header = row * control[WORDS] + control[HEADER]
    words[header + VERSION] = uint32(0)
    words[header + COUNT] = float32_as_bits(float32(0.0))


@part
def _located(control, ids, begin, end, rows, hashes, beginning, fills, like, scratch, creates):
    """The rows of some ids, created where there are none and may be one; how many of them there is room for."""
    find(control, ids, begin, end, rows, hashes)
    if control[INDEX] == 0 or not creates:
        return end - begin
    for i in range(end - begin):
        if rows[i] < 0:
            rows[i] = find_one(control, ids[begin + i], hashes[i])  # it may have been created just now
        if rows[i] < 0 and is_drawn(control, hashes[i]):
            rows[i] = _create(control, ids[begin + i], hashes[i], beginning, fills, like, scratch)
            if rows[i] < 0:
                return i
    return end - begin


@part
def _memo(like):
    """A map of missed steps that is of no version yet."""
    memo = np.empty((1, MAP_SIZE), like.dtype)
    memo[0, MAP_SIZE - 1] = -1.0
    return memo


@part
def _seed(id, now):
    return hash_of(int64(hash_of(id)) + now)


def _fetch(control, ids, places, out, rule, rates, blocks, large, now, beginning, fills, creates, start):
    """Writes the weights of rows to ``out``, row i to places[i]. Rows that do not exist are created, or read as they
    would be; those of ids that are not admitted (yet) are zeros. Returns how many ids are done: fewer than all if there
    is no room."""
    width, count, held = control[WIDTH], len(ids), control[SLOTS]
    rows, hashes = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.uint64)
    scratch, g, before = np.empty(width, out.dtype), np.empty(width, out.dtype), np.empty(width, out.dtype)
    others, memo = np.empty(held * width, out.dtype), _memo(rule)
    words, (weights, slots, stride) = record_words(control), columns_of(control, out)
    elements, moves = elements_of(control, out), drifts(rule)
    for begin in range(start, count, AT_ONCE):
        end = min(begin + AT_ONCE, count)
        room = _located(control, ids, begin, end, rows, hashes, beginning, fills, out, scratch, creates)
        for i in range(room):
            row, target = rows[i], out[places[begin + i]]
            if row < 0:
                if is_counted_first(control) or not is_drawn(control, hashes[i]):
                    target[:] = 0.0
                    continue
                fill(target, width, ids[begin + i], beginning)
                if moves and now > 0:
                    for slot in range(held):
                        others[slot * width : (slot + 1) * width] = fills[slot]
                    catch_up(rule, target, others, width, rates, blocks, large, 0, now, g, before, memo)
                continue
            base = row * stride
            if control[PRECISION] == NATIVE:
                w = elements[base + weights : base + weights + width]
            else:
                w = scratch
                unpack(control, row, w)
            place = row * control[WORDS] + control[HEADER] + VERSION
            version = int64(words[place])
            if moves and version < now:
                if not save(control, row):
                    return begin + i
                s = elements[base + slots : base + slots + held * width]
                catch_up(rule, w, s, width, rates, blocks, large, version, now, g, before, memo)
                words[place] = uint32(now)
                if control[PRECISION] != NATIVE:
                    pack_at_random(control, row, w, _seed(ids[begin + i], now))
            for column in range(width):
                target[column] = w[column]
        if room < end - begin:
            return begin + room
    return count


def _push(control, ids, places, grads, rule, rates, blocks, large, now, beginning, fills, creates, start):
    """Updates rows with gradients, that of ids[i] in row places[i], as step ``now``; returns how many are done.

    Ids that get rows only after several updates are counted; the row that begins when they are enough begins without
    the gradient, which was computed without it.
    """
    width, count = control[WIDTH], len(ids)
    rows, hashes = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.uint64)
    scratch, g, before = np.empty(width, grads.dtype), np.empty(width, grads.dtype), np.empty(width, grads.dtype)
    memo, first = _memo(rule), is_counted_first(control)
    words, (weights, slots, stride) = record_words(control), columns_of(control, grads)
    elements, moves = elements_of(control, grads), drifts(rule)
    marks = carray(pointer_to(control[MARKS], _MARKS), (control[CAPACITY],))
    rate, decays = scratch.dtype.type(rates[now % RATES]), rule[KIND] != ADD
    power, other = rule[A] ** now, rule[B] ** now
    scale, lowest, highest = g.dtype.type(rule[SCALE]), g.dtype.type(rule[LOWEST]), g.dtype.type(rule[HIGHEST])
    for begin in range(start, count, AT_ONCE):
        end = min(begin + AT_ONCE, count)
        room = _located(control, ids, begin, end, rows, hashes, beginning, fills, grads, scratch, creates and not first)
        for i in range(room):
            prefetch(control[MARKS] + max(rows[i], 0))
        for i in range(room):
            row, is_new = rows[i], False
            if row < 0:
                if not (first and is_drawn(control, hashes[i]) and has_arrived(control, hashes[i])):
                    continue
                row, is_new = _create(control, ids[begin + i], hashes[i], beginning, fills, grads, scratch), True
                if row < 0:
                    return begin + i
            if not save(control, row):
                return begin + i
            base, source = row * stride, grads[places[begin + i]]
            if control[PRECISION] == NATIVE:
                w = elements[base + weights : base + weights + width]
            else:
                w = scratch
                unpack(control, row, w)
            s = elements[base + slots : base + slots + control[SLOTS] * width]
            header = row * control[WORDS] + control[HEADER]
            version = int64(words[header + VERSION])
            if moves and version < now - 1:
                catch_up(rule, w, s, width, rates, blocks, large, version, now - 1, g, before, memo)
            for column in range(width):
                g[column] = 0.0 if is_new else min(max(scale * source[column], lowest), highest)
            if decays:
                decay(rule, w, g, width)
            if moves or not is_new:
                step(rule, w, s, width, g, rate, power, other)
            if control[PRECISION] != NATIVE:
                pack_at_random(control, row, w, _seed(ids[begin + i], now))
            words[header + VERSION] = uint32(now)
            words[header + COUNT] = float32_as_bits(bits_as_float32(words[header + COUNT]) + float32(1.0))
            marks[row] |= uint8(CHANGED | UNSAVED)
        if room < end - begin:
            return begin + room
    return count


_BATCH = f"int64(int64[::1], {IDS}, {IDS}, "
_MAPS = "float64[:, ::1], float64[:, ::1]"
_RULES = f", float64[::1], float64[::1], {_MAPS}, int64, float64[::1], float64[::1], boolean, int64)"
_FETCH, _PUSH = _BATCH + "{0}[:, ::1]" + _RULES, _BATCH + VALUES + _RULES
fetch32, fetch64 = (kernel(_FETCH.format(kind))(_fetch) for kind in ("float32", "float64"))
push32, push64 = (kernel(_PUSH.format(kind))(_push) for kind in ("float32", "float64"))


def _begin_rows(control, begin, end, beginning, fills, like):
    """Fills the rows from ``begin`` to ``end`` of a table of fixed height with what they begin with."""
    scratch = np.empty(control[WIDTH], like.dtype)
    for row in range(begin, end):
        _begin(control, row, control[FIRST] + row, beginning, fills, like, scratch)


_BEGIN = "void(int64[::1], int64, int64, float64[::1], float64[::1], {0}[::1])"
begin_rows32, begin_rows64 = (kernel(_BEGIN.format(kind))(_begin_rows) for kind in ("float32", "float64"))


def _set_weights(control, begin, values):
    """Replaces the weights of rows from ``begin`` on."""
    width, (weights, _, stride) = control[WIDTH], columns_of(control, values)
    elements, marks = elements_of(control, values), carray(pointer_to(control[MARKS], _MARKS), (control[CAPACITY],))
    for i in range(len(values)):
        row = begin + i
        save(control, row)
        if control[PRECISION] == NATIVE:
            for column in range(width):
                elements[row * stride + weights + column] = values[i, column]
        else:
            pack(control, row, values[i])
        marks[row] |= uint8(CHANGED | UNSAVED)


_SET = f"void(int64[::1], int64, {VALUES})"
set_weights32, set_weights64 = (kernel(_SET.format(kind))(_set_weights) for kind in ("float32", "float64"))


@kernel(f"int64(int64[::1], {IDS}, {VALUES}, int64)".format("uint32"))
def replace(control, ids, records, start):
    """Puts whole records into rows, created where there are none; returns how many are done."""
    rows, hashes, words, marks = (
        np.empty(AT_ONCE, np.int64),
        np.empty(AT_ONCE, np.uint64),
        record_words(control),
        carray(pointer_to(control[MARKS], _MARKS), (control[CAPACITY],)),
    )
    for i in range(start, len(ids)):
        find(control, ids, i, i + 1, rows, hashes)
        row = rows[0]
        if row < 0 and control[INDEX] != 0:
            row = add(control, ids[i], hash_of(ids[i]))
        if row < 0 or not save(control, row):
            return i
        for word in range(control[WORDS]):
            words[row * control[WORDS] + word] = records[i, word]
        marks[row] |= uint8(CHANGED | UNSAVED)
    return len(ids)


@kernel("int64(int64[::1], int64, int64, uint8, uint8, uint32[:, ::1], int64[::1])")
def copy_out(control, begin, end, mark, cleared, records, rows):
    """Copies the records from ``begin`` to ``end`` for a snapshot; returns how many.

    With a mark, only those that have it. All that are copied lose the marks in ``cleared``. Those that were changed
    since it began have been saved.
    """
    words, marks = record_words(control), carray(pointer_to(control[MARKS], _MARKS), (control[CAPACITY],))
    count = 0
    for row in range(begin, end):
        if marks[row] & uint8(IS_SAVED):
            marks[row] &= uint8(255 - IS_SAVED)
            continue
        place = row * control[WORDS]
        if words[place + control[HEADER] + VERSION] == uint32(DEAD) or (mark and not marks[row] & mark):
            continue
        marks[row] &= uint8(255 - cleared)
        for word in range(control[WORDS]):
            records[count, word] = words[place + word]
        rows[count] = row
        count += 1
    return count


@kernel(f"int64(int64[::1], {IDS})")
def count_new(control, ids):
    """How many of some ids, all different, have no row and get one with their next update."""
    rows, hashes, count = np.empty(AT_ONCE, np.int64), np.empty(AT_ONCE, np.uint64), 0
    for begin in range(0, len(ids), AT_ONCE):
        end = min(begin + AT_ONCE, len(ids))
        find(control, ids, begin, end, rows, hashes)
        for i in range(end - begin):
            if rows[i] < 0 and would_arrive(control, hashes[i]):
                count += 1
    return count


@kernel("void(int64[::1], int64, int64, int64, int64[::1])")
def count_ages(control, begin, end, width, ages):
    """Counts rows from ``begin`` to ``end`` by the step they were last used in, ``width`` steps at a time."""
    words = record_words(control)
    for row in range(begin, end):
        version = words[row * control[WORDS] + control[HEADER] + VERSION]
        if version != uint32(DEAD):
            ages[min(int64(version) // width, len(ages) - 1)] += 1


def _evict(control, begin, end, oldest, least, smallest, fewest, like):
    """Gives up rows from ``begin`` to ``end``; returns how many. Those that were last updated before step ``oldest``
    and have no smaller id than ``least``, whose weights have a norm below ``smallest``, or that were counted less than
    ``fewest`` times. While there is a snapshot, there is room to save them."""
    words, ids, width, gone = record_words(control), record_ids(control), control[WIDTH], 0
    elements, (weights, _, stride) = elements_of(control, like), columns_of(control, like)
    scratch = np.empty(width, like.dtype)
    for row in range(begin, end):
        header = row * control[WORDS] + control[HEADER]
        if words[header + VERSION] == uint32(DEAD):
            continue
        is_old = int64(words[header + VERSION]) < oldest and ids[row * control[WORDS] // 2 + ID] >= least
        doomed = is_old or bits_as_float32(words[header + COUNT]) < fewest
        if not doomed and smallest > 0.0:
            if control[PRECISION] == NATIVE:
                for column in range(width):
                    scratch[column] = elements[row * stride + weights + column]
            else:
                unpack(control, row, scratch)
            doomed = np.sqrt(np.sum(scratch * scratch)) < smallest
        if doomed and save(control, row):
            free(control, row)
            gone += 1
    return gone


_EVICT = "int64(int64[::1], int64, int64, int64, int64, float64, float64, {0}[::1])"
evict32, evict64 = (kernel(_EVICT.format(kind))(_evict) for kind in ("float32", "float64"))


@kernel("void(int64[::1], int64, int64, float32)")
def decay_counts(control, begin, end, factor):
    """Multiplies the counts of rows."""
    words = record_words(control)
    for row in range(begin, end):
        place = row * control[WORDS] + control[HEADER] + COUNT
        words[place] = float32_as_bits(bits_as_float32(words[place]) * factor)
