"""Writing arrays as pickles that real Fluid reads."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

_LARGE = 1 << 20  # arrays of this many bytes and more are written as raw bytes


def write_pickle(stream: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a dict of arrays as a pickle that NumPy 1 can read; Python's own would name modules of NumPy 2.

    Arrays below 1 MB are written as Fluid writes them (protocol 2): bytes as text, which Python 2 can read. Larger ones
    are raw bytes (protocol 3), which need Python 3: a third smaller, and ten times as fast.
    """
    stream.write(b"\x80\x02}(")
    for name, array in arrays.items():
        stream.write(_pickled_text(name))
        _write_array(stream, array)
    stream.write(b"u.")


def _write_array(stream: BinaryIO, array: np.ndarray) -> None:
    shape = b"(" + b"".join(map(_pickled_int, array.shape)) + b"t"
    code = array.dtype.newbyteorder("<").str
    dtype = b"cnumpy\ndtype\n" + _pickled_text(code[1:]) + b"\x89\x88\x87R"
    order = b"(K\x03" + _pickled_text(code[0]) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    stream.write(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85")
    _write_bytes(stream, memoryview(b"b"))
    stream.write(b"\x87R(K\x01" + shape + dtype + order + b"\x89")
    _write_bytes(stream, np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
    stream.write(b"tb")


def _write_bytes(stream: BinaryIO, data: memoryview) -> None:
    if len(data) >= _LARGE:
        is_huge = len(data) >= 1 << 32
        stream.write(struct.pack("<cQ", b"\x8e", len(data)) if is_huge else struct.pack("<cI", b"B", len(data)))
        stream.write(data)
        return
    text = str(data, "latin-1").encode()
    stream.write(b"c_codecs\nencode\nX" + struct.pack("<I", len(text)) + text)
    stream.write(_pickled_text("latin1") + b"\x86R")


def _pickled_text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _pickled_int(number: int) -> bytes:
    if number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    return b"\x8a\x08" + struct.pack("<q", number)
