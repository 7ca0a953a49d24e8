"""Products of a few rows with a matrix, and activations, written so that LLVM vectorises the loops.

Loops begin at 0 and constants are float32: a loop that begins elsewhere, or a Python constant, is not vectorised.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Fast math, except that infinities and NaNs are handled correctly.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
fast = njit(error_model="numpy", fastmath=_FAST)
# Sums are evaluated as written: b * x + (1 - b) * y would become y + b * (x - y), which is less exact.
in_order = njit(error_model="numpy", fastmath=_FAST - {"reassoc"})
inlined = njit(error_model="numpy", fastmath=_FAST, forceinline=True)

ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
_LINE = 16  # elements in a cache line
_FLAT = np.float32(7.9988117)  # beyond it, tanh is 1
# tanh(x) is nearly x p(x * x) / q(x * x), with coefficients from the highest power down.
_P = tuple(
    np.float32(c)
    for c in (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    )
)
_Q = tuple(
    np.float32(c) for c in (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
)


@inlined
def tanh(x):
    """Accurate to a few units in the last place."""
    x = _FLAT if x > _FLAT else x
    x = -_FLAT if x < -_FLAT else x  # NaN stays NaN
    s = x * x
    p = _P[0] * s + _P[1]
    p = ((((p * s + _P[2]) * s + _P[3]) * s + _P[4]) * s + _P[5]) * s + _P[6]
    q = ((_Q[0] * s + _Q[1]) * s + _Q[2]) * s + _Q[3]
    return x * p / q


@inlined
def sigmoid(x):
    """(tanh(x / 2) + 1) / 2."""
    return HALF * tanh(HALF * x) + HALF


@fast
def copy_row(target, i, source, j):
    """target[i] = source[j]"""
    for k in range(target.shape[1]):
        target[i, k] = source[j, k]


@fast
def add_row(target, i, source, j):
    """target[i] += source[j]"""
    for k in range(target.shape[1]):
        target[i, k] += source[j, k]


@fast
def fill(row, value):
    """row = value, in all places."""
    for k in range(row.shape[0]):
        row[k] = value


@fast
def add_scaled(row, a, x):
    """row += a * x"""
    for k in range(row.shape[0]):
        row[k] += a * x[k]


@fast
def add_two_scaled(row, a, x, b, y):
    """row += a * x + b * y"""
    for k in range(row.shape[0]):
        row[k] += a * x[k] + b * y[k]


@fast
def dot(x, y):
    """The sum of x * y."""
    total = ZERO
    for k in range(x.shape[0]):
        total += x[k] * y[k]
    return total


@fast
def columns_of_part(width, part, parts):
    """The first column of a part and one after its last: whole cache lines."""
    lines = (width + _LINE - 1) // _LINE
    return lines * part // parts * _LINE, min(lines * (part + 1) // parts * _LINE, width)


@fast
def room(number, width):
    """Zeros for that many rows, rounded up as in `add_product`."""
    return np.zeros(((number + 3) // 4 * 4, width), np.float32)


@fast
def fill_rows(target, start, source):
    """Copies row ``source`` to all rows from ``start`` on; fills them with 0 if there is no such row before them."""
    for i in range(start, target.shape[0]):
        for k in range(target.shape[1]):
            target[i, k] = target[source, k] if 0 <= source < start else 0


@fast
def add_product(out, rows, weight, number):
    """out += rows @ weight for the first ``number`` rows, rounded up to a multiple of 4."""
    depth, width = weight.shape
    whole = depth // 4 * 4
    for i in range(0, number, 4):
        for k in range(0, whole, 4):
            a0, a1, a2, a3 = rows[i, k], rows[i, k + 1], rows[i, k + 2], rows[i, k + 3]
            b0, b1, b2, b3 = rows[i + 1, k], rows[i + 1, k + 1], rows[i + 1, k + 2], rows[i + 1, k + 3]
            c0, c1, c2, c3 = rows[i + 2, k], rows[i + 2, k + 1], rows[i + 2, k + 2], rows[i + 2, k + 3]
            d0, d1, d2, d3 = rows[i + 3, k], rows[i + 3, k + 1], rows[i + 3, k + 2], rows[i + 3, k + 3]
            for j in range(width):
                w0, w1, w2, w3 = weight[k, j], weight[k + 1, j], weight[k + 2, j], weight[k + 3, j]
                out[i, j] += a0 * w0 + a1 * w1 + a2 * w2 + a3 * w3
                out[i + 1, j] += b0 * w0 + b1 * w1 + b2 * w2 + b3 * w3
                out[i + 2, j] += c0 * w0 + c1 * w1 + c2 * w2 + c3 * w3
                out[i + 3, j] += d0 * w0 + d1 * w1 + d2 * w2 + d3 * w3
        for k in range(whole, depth):
            for r in range(i, i + 4):
                factor = rows[r, k]
                for j in range(width):
                    out[r, j] += factor * weight[k, j]
