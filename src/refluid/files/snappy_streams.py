"""Snappy streams as Fluid's recordio files hold them; needs the package ``cramjam``.

Fluid writes the older stream format: ``snappy`` and a zero byte, then blocks of at most 32 KB. A block is a byte that
says whether it is compressed, its size (uint16), a masked CRC-32C of the data before compression (uint32), both
big-endian, and the bytes. Paddle's tools in Go write the framing format that Snappy standardized later. Both are read.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator
from typing import Any

_OLD, _FRAMED = b"snappy\0", b"\xff\x06\x00\x00sNaPpY"
_BLOCK = 1 << 15
_LARGEST = 1 << 16  # no writer makes blocks of more than 64 KB: a forged size must not be allocated
_HEADER = struct.Struct(">BHI")


def compress(data: bytes | memoryview) -> bytes:
    """Compresses data to a stream of the older format."""
    library, view = _library(), memoryview(data)
    parts = [_OLD]
    for start in range(0, len(view), _BLOCK):
        # A frame of the newer format has the same content, under another header: 10 bytes that open a stream, then one
        # of type, three of size and the checksum.
        frame = bytes(library.compress(view[start : start + _BLOCK]))[len(_FRAMED) :]
        is_compressed, checksum, body = frame[0] == 0, int.from_bytes(frame[4:8], "little"), frame[8:]
        parts += [_HEADER.pack(is_compressed, len(body), checksum), body]
    return b"".join(parts)


def decompress(data: bytes) -> bytearray | memoryview:
    """Decompresses a stream of either format, to at most 24 times its size.

    Raises:
      ValueError: the stream is damaged.
    """
    library = _library()
    if data.startswith(_FRAMED):
        try:
            return memoryview(library.decompress(data))
        except Exception as error:
            raise ValueError(f"the snappy stream is damaged: {error}") from error
    if not data.startswith(_OLD):
        raise ValueError(f"not a snappy stream: it begins with {data[:10]!r}")
    found = bytearray()
    for block in _blocks(library, memoryview(data), len(_OLD)):
        found += block
    return found


def _blocks(library: Any, data: memoryview, position: int) -> Iterator[bytes | memoryview]:
    # The checksums of the blocks are not looked at, as in Fluid: the chunk around the stream has one of its own.
    while position < len(data):
        if len(data) - position < _HEADER.size:
            raise ValueError(f"the snappy stream ends inside the header of a block, at byte {len(data)}")
        is_compressed, size, _ = _HEADER.unpack_from(data, position)
        position += _HEADER.size
        block = data[position : position + size]
        if len(block) < size:
            raise ValueError(f"the snappy stream ends inside a block: {size} bytes expected, {len(block)} are left")
        yield _decompress_block(library, block, position) if is_compressed else block
        position += size


def _decompress_block(library: Any, block: memoryview, position: int) -> bytes:
    try:
        size = library.decompress_raw_len(block)
        if size <= _LARGEST:
            return bytes(library.decompress_raw(block))
    except Exception as error:
        raise ValueError(f"the snappy block at byte {position} is damaged: {error}") from error
    raise ValueError(f"the snappy block at byte {position} is damaged: it claims to hold {size} bytes")


def _library() -> Any:
    try:
        return importlib.import_module("cramjam").snappy
    except ImportError as error:
        raise ImportError(
            "recordio files compressed with snappy need the package cramjam: pip install cramjam. "
            "Files written with Compressor.NoCompress do not"
        ) from error
