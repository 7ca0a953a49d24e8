"""Numbers in text: the parts of the parser that read an id or a float at an address.

A number ends at a blank or at the end of the line. The text ends with a line, so only reading 8 bytes at once has to
look at where it ends.
"""

from __future__ import annotations

import numpy as np

from refluid.datasets.kernels.compiled import bits_of, load_byte, load_uint64, part, trailing_zeros

NEWLINE, SPACE, PLUS, MINUS, POINT, ZERO = (ord(c) for c in "\n +-.0")

# How a number was read.
GOOD, BAD, TOO_LARGE, HARD = range(4)

_POWERS = 10.0 ** np.arange(23)  # exact in float64
_INTEGER_POWERS = np.array([10**n for n in range(9)], np.uint64)
_MOST_DIGITS = 19  # which fit in 64 bits
# A float64 this close to the middle between two float32, in units of its last bit, may round the wrong way.
_MARGIN = 16
_MIDDLE, _BELOW_FLOAT32 = 1 << 28, (1 << 29) - 1
_SMALLEST_NORMAL, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
_INFINITY, _NAN = np.frombuffer(b"infinity", np.uint8), np.frombuffer(b"nan", np.uint8)


@part
def ends(c):
    """Whether a number may end before this byte: all below a space count as blanks, as tabs do."""
    return c <= SPACE


@part
def skip_blanks(p):
    """The address of the next byte that is not blank, or ends the line."""
    c = load_byte(p)
    while c <= SPACE and c != NEWLINE:
        p += 1
        c = load_byte(p)
    return p


@part
def _is_digit(c):
    return c >= ZERO and c <= ZERO + 9


@part
def _read_digits(p, end, value):
    """``value`` followed by the digits at an address, modulo 2**64, and the address behind them.

    Eight bytes at once: which of them are digits, and then three multiplications that add neighbours up.
    """
    while p + 8 <= end:
        text = load_uint64(p)
        shifted = text - np.uint64(0x3030303030303030)
        others = ((text + np.uint64(0x4646464646464646)) | shifted) & np.uint64(0x8080808080808080)
        count = trailing_zeros(others) >> 3
        if count == 0:
            return value, p
        number = shifted << np.uint64(64 - 8 * count)  # the text as if zeros came before it
        number = number * np.uint64(10) + (number >> np.uint64(8))
        odd = (number & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
        even = ((number >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
        value = value * _INTEGER_POWERS[count] + ((odd + even) >> np.uint64(32))
        p += count
        if count < 8:
            return value, p
    c = load_byte(p)
    while _is_digit(c):
        value = value * np.uint64(10) + np.uint64(c - ZERO)
        p += 1
        c = load_byte(p)
    return value, p


@part
def _exceeds_64_bits(begin, end, value):
    """Whether more than 19 digits, read modulo 2**64, are too many."""
    while load_byte(begin) == ZERO:
        begin += 1
    digits = end - begin
    if digits <= _MOST_DIGITS:
        return False
    return digits > _MOST_DIGITS + 1 or load_byte(begin) > ZERO + 1 or value < np.uint64(10**_MOST_DIGITS)


@part
def read_id(p, end):
    """An id: 64 bits, as int64 whatever its sign. Returns (id, address behind it, how it was read)."""
    c = load_byte(p)
    negative = c == MINUS
    if negative or c == PLUS:
        p += 1
    begin = p
    value, p = _read_digits(p, end, np.uint64(0))
    if p == begin or not ends(load_byte(p)):
        return 0, p, BAD
    if p - begin > _MOST_DIGITS and _exceeds_64_bits(begin, p, value):
        return 0, p, TOO_LARGE
    return (-np.int64(value) if negative else np.int64(value)), p, GOOD


@part
def _read_exponent(p):
    """(exponent, address behind it, how it was read)"""
    c = load_byte(p)
    negative = c == MINUS
    if negative or c == PLUS:
        p += 1
        c = load_byte(p)
    if not _is_digit(c):
        return 0, p, BAD
    value = 0
    while _is_digit(c):
        value = min(value * 10 + (c - ZERO), 100_000)
        p += 1
        c = load_byte(p)
    return (-value if negative else value), p, GOOD


@part
def _behind(p, word):
    """The address behind a word, 0 if there is another."""
    for letter in word:
        if load_byte(p) | 32 != letter:
            return 0
        p += 1
    return p


@part
def _read_word(p):
    """nan, inf and infinity, in any case, are left to Python."""
    end = _behind(p, _INFINITY)
    if end == 0:
        end = max(_behind(p, _INFINITY[:3]), _behind(p, _NAN))
    if end == 0 or not ends(load_byte(end)):
        return 0.0, p, BAD
    return np.inf, end, HARD


@part
def _read_long(p):
    """The first 19 digits of a long number, and the power of ten that the others and the point make."""
    value, scale, fraction = np.uint64(0), 0, False
    digits = 0
    c = load_byte(p)
    while _is_digit(c) or c == POINT:
        if c == POINT:
            fraction = True
        elif digits < _MOST_DIGITS:
            value = value * np.uint64(10) + np.uint64(c - ZERO)
            digits += value != 0
            scale -= fraction
        else:
            scale += not fraction
        p += 1
        c = load_byte(p)
    return value, scale


@part
def _scaled(value, scale):
    """value * 10**scale, and how well it is known."""
    size = np.float64(value)
    if value == 0 or (scale == 0 and value <= np.uint64(1 << 53)):
        return size, GOOD
    if scale > 44 or scale < -44:
        return (np.inf if scale > 0 else 0.0), HARD
    if scale > 0:
        size = size * _POWERS[min(scale, 22)] * _POWERS[max(scale - 22, 0)]
    else:
        size = size / _POWERS[min(-scale, 22)]
        if scale < -22:
            size = size / _POWERS[-scale - 22]
    if size < _SMALLEST_NORMAL or size > _LARGEST:
        return size, HARD
    distance = (bits_of(size) & _BELOW_FLOAT32) - _MIDDLE
    return size, (HARD if -_MARGIN <= distance <= _MARGIN else GOOD)


@part
def read_float(p, end):
    """A float32, as float64. Returns (value, address behind it, how it was read).

    What arithmetic in float64 cannot decide is HARD: the value is close, and Python must read the text again.
    """
    c = load_byte(p)
    negative = c == MINUS
    if negative or c == PLUS:
        p += 1
    begin, scale = p, 0
    value, p = _read_digits(p, end, np.uint64(0))
    digits = p - begin
    if load_byte(p) == POINT:
        value, p = _read_digits(p + 1, end, value)
        scale = digits + 1 - (p - begin)
        digits -= scale
    if digits == 0:
        return _read_word(begin)
    if digits > _MOST_DIGITS:
        value, scale = _read_long(begin)
    if load_byte(p) | 32 == ord("e"):
        exponent, p, how = _read_exponent(p + 1)
        if how == BAD:
            return 0.0, p, BAD
        scale += exponent
    if not ends(load_byte(p)):
        return 0.0, p, BAD
    size, how = _scaled(value, scale)
    return (-size if negative else size), p, how
