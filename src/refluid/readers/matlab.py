"""MATLAB 5 files: real matrices of numbers, which is all that datasets keep in them."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from refluid.readers.dataset_files import Source, named, opened

_MATRIX, _COMPRESSED, _HEADER = 14, 15, 128
_DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
# Classes of numeric matrices; their elements may be stored in a smaller type.
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_MAX_MATRIX = 1 << 28  # bytes; stops a small compressed element from filling memory


class _Damaged(Exception):
    """What is wrong with the file."""


def read_matrices(source: Source) -> dict[str, np.ndarray]:
    """The numeric matrices of a file by name; matrices of anything else are left out.

    Raises:
      ValueError: the file is not a MATLAB 5 file, or is damaged.
    """
    with opened(source) as stream:
        content = stream.read()
    try:
        order = {b"IM": "<", b"MI": ">"}.get(content[126:_HEADER])
        if order is None:
            raise _Damaged("its header is another")
        return dict(_matrices(content[_HEADER:], order))
    except (_Damaged, struct.error, zlib.error, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{named(source)} is not a MATLAB 5 file that can be read: {error}") from error


def _matrices(content: bytes, order: str) -> Iterator[tuple[str, np.ndarray]]:
    for kind, data in _inflated(content, order):
        parts = list(_elements(data, order)) if kind == _MATRIX else []
        if not parts:
            continue
        matrix_class = struct.unpack(order + "I", parts[0][1][:4])[0]
        if matrix_class & 0xFF in _CLASSES and not matrix_class & 0x800:  # the flag of complex numbers
            yield _matrix(parts, _CLASSES[matrix_class & 0xFF], order)


def _inflated(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """The elements of a file; an element may be compressed, but only once."""
    for kind, data in _elements(content, order):
        if kind == _COMPRESSED:
            yield from _elements(zlib.decompressobj().decompress(data, _MAX_MATRIX), order)
        else:
            yield kind, data


def _matrix(parts: list[tuple[int, bytes]], dtype: str, order: str) -> tuple[str, np.ndarray]:
    if len(parts) < 4:
        raise _Damaged("a matrix has too few parts")
    (_, shape_data), (_, name), (kind, data) = parts[1:4]
    shape = np.frombuffer(shape_data, order + "i4").tolist()
    values = np.frombuffer(data, order + _DTYPES[kind])
    if math.prod(shape) != values.size:
        raise _Damaged(f"a matrix of shape {shape} has {values.size} elements")
    return name.decode("ascii"), values.astype(dtype).reshape(shape, order="F")


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """(type, data) of the elements that follow each other; short ones have their data in the tag."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from(order + "II", content, at)
        start, step = at + 8, 8
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
        else:
            step += size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > len(content):
            raise _Damaged(f"{start + size - len(content)} bytes are missing at its end")
        yield kind, content[start : start + size]
        at += step
