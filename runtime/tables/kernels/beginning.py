"""How rows begin: the numbers that the table's initializer would have drawn for all rows, computed for one.

Random numbers are hashes of their place in the table, as in `refluid.ops.core.noise`. So a row begins the same whenever
it is touched first, and on whichever server; and where the local program has the whole table, it begins the same there.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int64, uint32, uint64  # pyright: ignore[reportPrivateImportUsage]

from refluid.runtime.tables.kernels.memory import part

CONSTANT, UNIFORM, NORMAL, TRUNCATED_NORMAL = 0, 1, 2, 3
# What `fill` reads: the kind; bounds, or mean and deviation; whether to draw float64; the words of two random keys.
KIND, FIRST_NUMBER, SECOND_NUMBER, IS_DOUBLE, FIRST_WORD = 0, 1, 2, 3, 4
BEGINNING_SIZE = 8

_EDGE = math.erf(2.0 / math.sqrt(2.0))  # a truncated normal ends at two standard deviations
_ROOT = np.float32(math.sqrt(2.0))


@part
def _mix(value, word):
    # numba computes in 64 bits, so every product is cut to 32 again.
    value = uint32((value ^ (value >> uint32(17))) * uint32(0xED5AD4BB)) ^ word
    value = uint32((value ^ (value >> uint32(11))) * uint32(0xAC4C1B51))
    value = uint32((value ^ (value >> uint32(15))) * uint32(0x31848BAB))
    return uint32(value ^ (value >> uint32(14)))


@part
def _bits(first, second, place):
    """32 random bits. Places beyond 2^32, which no array has, hash their upper half into the key."""
    upper = uint32(place >> uint64(32))
    if upper:
        first = uint32(first ^ _mix(upper, second))
    return _mix(uint32(uint32(place) + first), second)


@part
def _erf_inv32(x):
    """The inverse of erf in float32, by Giles' polynomials, which XLA uses as well."""
    w = -np.log1p(-x * x)
    if w < float32(5.0):
        w -= float32(2.5)
        p = float32(2.81022636e-08)
        p = float32(3.43273939e-07) + p * w
        p = float32(-3.5233877e-06) + p * w
        p = float32(-4.39150654e-06) + p * w
        p = float32(0.00021858087) + p * w
        p = float32(-0.00125372503) + p * w
        p = float32(-0.00417768164) + p * w
        p = float32(0.246640727) + p * w
        p = float32(1.50140941) + p * w
    else:
        w = np.sqrt(w) - float32(3.0)
        p = float32(-0.000200214257)
        p = float32(0.000100950558) + p * w
        p = float32(0.00134934322) + p * w
        p = float32(-0.00367342844) + p * w
        p = float32(0.00573950773) + p * w
        p = float32(-0.0076224613) + p * w
        p = float32(0.00943887047) + p * w
        p = float32(1.00167406) + p * w
        p = float32(2.83297682) + p * w
    return p * x


@part
def _fraction32(beginning, place):
    one, two = uint32(beginning[FIRST_WORD]), uint32(beginning[FIRST_WORD + 1])
    return float32(_bits(one, two, place) >> uint32(8)) * float32(2.0**-24)


@part
def _fraction64(beginning, place):
    one, two = uint32(beginning[FIRST_WORD]), uint32(beginning[FIRST_WORD + 1])
    three, four = uint32(beginning[FIRST_WORD + 2]), uint32(beginning[FIRST_WORD + 3])
    bits = (uint64(_bits(one, two, place)) << uint64(32)) | uint64(_bits(three, four, place))
    return float64(bits >> uint64(11)) * 2.0**-53


@part
def _normal32(fraction, edge):
    half = float32(2.0**-25)
    middle = min(max(fraction + half, half), float32(1.0) - float32(2.0) * half)
    return _erf_inv32(middle * (edge + edge) - edge) * _ROOT


@part
def _normal64(fraction, edge):
    half = 2.0**-54
    x = min(max(fraction + half, half), 1.0 - 2.0 * half) * (edge + edge) - edge
    y = float64(_erf_inv32(float32(x)))
    for _ in range(3):  # Newton's method, from seven digits to all
        y -= (math.erf(y) - x) * math.exp(y * y) * (math.sqrt(math.pi) / 2.0)
    return y * math.sqrt(2.0)


@part
def fill(weights, width, id, beginning):
    """The weights that the row of an id begins with."""
    kind, first, second = int64(beginning[KIND]), beginning[FIRST_NUMBER], beginning[SECOND_NUMBER]
    if kind == CONSTANT:
        for column in range(width):
            weights[column] = first
        return
    edge = 1.0 if kind == NORMAL else _EDGE
    for column in range(width):
        place = uint64(id) * uint64(width) + uint64(column)
        if beginning[IS_DOUBLE]:
            fraction = _fraction64(beginning, place)
            drawn = fraction if kind == UNIFORM else _normal64(fraction, edge)
            weights[column] = drawn * (second - first) + first if kind == UNIFORM else drawn * second + first
        else:
            short = _fraction32(beginning, place)
            if kind == UNIFORM:
                weights[column] = short * float32(second - first) + float32(first)
            else:
                weights[column] = _normal32(short, float32(edge)) * float32(second) + float32(first)
