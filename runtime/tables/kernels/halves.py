"""Weights of 16 bits in records: bfloat16 and float16.

Weights that begin or are set are rounded to nearest. Those that an update changes are rounded up or down at random, in
proportion to how near both neighbours are: an update that is too small to reach the next number would otherwise always
be lost, and so its sum over many steps. Random bits are a hash of the id and the step, so that runs are the same.
"""

from __future__ import annotations

import numpy as np
from numba import carray, float32, uint16, uint32, uint64  # pyright: ignore[reportPrivateImportUsage]

from refluid.runtime.tables.kernels.layout import BFLOAT16, CAPACITY, HEADER, PRECISION, RECORDS, WIDTH, WORDS
from refluid.runtime.tables.kernels.memory import bits_as_float32, float32_as_bits, part, pointer_to

_HALVES = np.empty(0, np.uint16)


@part
def _halves(control):
    return carray(pointer_to(control[RECORDS], _HALVES), (control[CAPACITY] * control[WORDS] * 2,))


@part
def unpack(control, row, weights):
    """Copies weights of 16 bits from a record."""
    halves, begin = _halves(control), (row * control[WORDS] + control[HEADER]) * 2
    for column in range(control[WIDTH]):
        bits = uint32(halves[begin + column])
        weights[column] = bits_as_float32(bits << uint32(16)) if control[PRECISION] == BFLOAT16 else _from_half(bits)


@part
def pack(control, row, weights):
    """Copies weights into a record, rounded to nearest, ties to even."""
    halves, begin = _halves(control), (row * control[WORDS] + control[HEADER]) * 2
    for column in range(control[WIDTH]):
        bits = float32_as_bits(float32(weights[column]))
        if control[PRECISION] == BFLOAT16:
            halves[begin + column] = _to_bfloat(bits, uint32(0x7FFF) + ((bits >> uint32(16)) & uint32(1)))
        else:
            halves[begin + column] = _to_half(bits, uint32(0xFFF) + ((bits >> uint32(13)) & uint32(1)))


@part
def pack_at_random(control, row, weights, seed):
    """Copies weights into a record, rounded up or down at random."""
    halves, begin = _halves(control), (row * control[WORDS] + control[HEADER]) * 2
    state = seed | uint64(1)
    for column in range(control[WIDTH]):
        state ^= state << uint64(13)
        state ^= state >> uint64(7)
        state ^= state << uint64(17)
        noise, bits = uint32(state >> uint64(48)), float32_as_bits(float32(weights[column]))
        if control[PRECISION] == BFLOAT16:
            halves[begin + column] = _to_bfloat(bits, noise)
        else:
            halves[begin + column] = _to_half(bits, noise >> uint32(3))


@part
def _to_bfloat(bits, noise):
    """The upper half of a float32, after noise below 2^16 was added; a NaN stays one."""
    if (bits & uint32(0x7FFFFFFF)) > uint32(0x7F800000):
        return uint16((bits >> uint32(16)) | uint32(0x40))
    if (bits & uint32(0x7FFFFFFF)) == uint32(0x7F800000):
        return uint16(bits >> uint32(16))
    return uint16((bits + noise) >> uint32(16))


@part
def _from_half(bits):
    """A float16 as float32."""
    sign, exponent, fraction = (
        (bits & uint32(0x8000)) << uint32(16),
        (bits >> uint32(10)) & uint32(31),
        bits & uint32(1023),
    )
    if exponent == uint32(31):
        return bits_as_float32(sign | uint32(0x7F800000) | (fraction << uint32(13)))
    if exponent == uint32(0):
        small = float32(fraction) * float32(2.0**-24)
        return -small if sign else small
    return bits_as_float32(sign | ((exponent + uint32(112)) << uint32(23)) | (fraction << uint32(13)))


@part
def _to_half(bits, noise):
    """A float32 as float16, after noise below 2^13 was added; what is too large becomes infinite, and what is
    too small for a normal number is rounded to nearest."""
    sign, rest = (bits >> uint32(16)) & uint32(0x8000), bits & uint32(0x7FFFFFFF)
    if rest > uint32(0x7F800000):
        return uint16(sign | uint32(0x7E00))
    if rest >= uint32(0x47800000):
        return uint16(sign | uint32(0x7C00))
    if rest < uint32(0x38800000):  # smaller than the smallest normal number: in units of 2^-24
        value = bits_as_float32(rest) * float32(2.0**24)
        whole = uint32(value)
        left = value - float32(whole)
        if left > float32(0.5) or (left == float32(0.5) and whole & uint32(1)):
            whole += uint32(1)
        return uint16(sign | whole)
    rest += noise
    return uint16(sign | ((rest - uint32(112 << 23)) >> uint32(13)))
