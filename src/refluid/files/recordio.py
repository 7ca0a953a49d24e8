"""Fluid's recordio files: records of bytes in compressed chunks with a checksum.

All integers are uint32, little-endian. A chunk is a header (magic number, number of records, CRC-32 of the compressed
data, compressor, size of the compressed data) and the data, which after decompression is, for each record, its length
and its bytes. Paddle's tools in Go have the number of records last; the compressor, a small number, tells which it is.

Readers do not trust the file: they check how many bytes are left before they allocate. They take the memory of one
chunk: 25 times its size in the file, with gzip 256 MB at most.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, BinaryIO

import numpy as np

from refluid.files import snappy_streams
from refluid.files.raw import left
from refluid.files.storage import RemotePath, at
from refluid.files.tensors import TensorFileError, read_array, write_lod_tensor
from refluid.files.writing import atomic_write
from refluid.tensors import LoDTensor

_MAGIC = 0x01020304
_HEADER = struct.Struct("<5I")
_LENGTH = struct.Struct("<I")
_FULL = 1 << 25  # a chunk of this many bytes is written, however few records it has
_LARGEST_GZIP = 1 << 28


class Compressor(IntEnum):
    """How the chunks of a file are compressed."""

    NoCompress = 0
    Snappy = 1
    Gzip = 2

    __str__ = Enum.__str__  # Compressor.Snappy


class RecordIOError(ValueError):
    """A file that is not, or not entirely, a recordio file."""


class Writer:
    """Writes a recordio file, which appears at its path when the writer is closed without an error.

    >>> with Writer("train.recordio", Compressor.NoCompress) as writer:
    ...     writer.write(b"a record")
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | RemotePath,
        compressor: Compressor | int = Compressor.Snappy,
        max_records: int = 1000,
    ):
        if max_records < 1:
            raise ValueError(f"{path}: a chunk needs at least one record, but max_records is {max_records}")
        self._path, self._compressor, self._max_records = path, Compressor(compressor), max_records
        _compress(b"", self._compressor)  # a missing package is an error before there is a file
        self._records: list[bytes] = []
        self._size = 0
        self._file = ExitStack()
        self._stream: BinaryIO | None = self._file.enter_context(atomic_write(path))

    def write(self, record: bytes) -> None:
        """Adds a record."""
        if self._stream is None:
            raise ValueError(f"{self._path}: the writer is closed")
        self._records.append(bytes(record))
        self._size += _LENGTH.size + len(record)
        if len(self._records) >= self._max_records or self._size >= _FULL:
            self._write_chunk(self._stream)

    def close(self) -> None:
        """Completes the file."""
        if self._stream is not None:
            with self._file:
                stream, self._stream = self._stream, None
                self._write_chunk(stream)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._stream = None
            self._file.__exit__(kind, error, trace)

    def _write_chunk(self, stream: BinaryIO) -> None:
        if self._records:
            stream.write(pack_chunk(self._records, self._compressor))
        self._records, self._size = [], 0


def pack_chunk(records: Sequence[bytes], compressor: Compressor) -> bytes:
    """A chunk with these records; a file is a sequence of chunks."""
    data = b"".join(part for record in records for part in (_LENGTH.pack(len(record)), record))
    data = _compress(data, compressor)
    return _HEADER.pack(_MAGIC, len(records), zlib.crc32(data), compressor, len(data)) + data


def read(path: str | os.PathLike[str] | RemotePath) -> Iterator[bytes]:
    """Yields the records of a file.

    Raises:
      RecordIOError: the file is damaged or cut off. The records of all chunks before that place come first.
    """
    with at(path).open("rb") as stream:
        yield from read_stream(stream, str(path))


def read_stream(stream: BinaryIO, shown: str) -> Iterator[bytes]:
    """Yields the records in the rest of a stream; errors name the file ``shown`` and the byte where a chunk begins."""
    while True:
        offset = stream.tell()
        header = stream.read(_HEADER.size)
        if not header:
            return
        try:
            yield from _read_chunk(header, stream)
        except ValueError as error:
            raise RecordIOError(f"{shown}, chunk at byte {offset}: {error}") from error


def pack_tensors(tensors: Iterable[Any]) -> bytes:
    """The record of a batch: the number of tensors, then each as a LoDTensor stream."""
    given = list(tensors)
    stream = io.BytesIO()
    stream.write(_LENGTH.pack(len(given)))
    for tensor in given:
        if isinstance(tensor, LoDTensor):
            write_lod_tensor(stream, np.asarray(tensor.value), tensor.lod())
        else:
            write_lod_tensor(stream, tensor)
    return stream.getvalue()


def unpack_tensors(record: bytes) -> list[LoDTensor]:
    """The tensors of a record, with NumPy arrays as values.

    Raises:
      RecordIOError: the record was not written by `pack_tensors` or Fluid.
    """
    stream = io.BytesIO(record)
    try:
        if len(record) < _LENGTH.size:
            raise TensorFileError(f"it has {len(record)} bytes")
        (count,) = _LENGTH.unpack(stream.read(_LENGTH.size))
        tensors = []
        for _ in range(count):  # a forged count ends with the bytes of the record
            tensors.append(LoDTensor(*read_array(stream)))
    except ValueError as error:
        raise RecordIOError(f"the record does not hold tensors: {error}") from error
    if left(stream):
        raise RecordIOError(f"the record does not hold tensors: {left(stream)} bytes follow the last one")
    return tensors


@dataclass(frozen=True)
class _Chunk:
    records: int
    checksum: int
    compressor: Compressor
    size: int


def _read_chunk(header: bytes, stream: BinaryIO) -> Iterator[bytes]:
    if len(header) < _HEADER.size:
        raise ValueError(f"the file ends after {len(header)} of the {_HEADER.size} bytes of its header")
    chunk = _chunk(header)
    if chunk.size > left(stream):
        raise ValueError(
            f"the file is cut off: {chunk.records} records in {chunk.size} bytes expected, {left(stream)} bytes left"
        )
    data = stream.read(chunk.size)
    if zlib.crc32(data) != chunk.checksum:
        raise ValueError(f"its checksum is {zlib.crc32(data):#010x}, but the header says {chunk.checksum:#010x}")
    return _split(memoryview(_decompress(data, chunk.compressor)), chunk.records)


def _chunk(header: bytes) -> _Chunk:
    magic, first, second, third, fourth = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise ValueError(f"not a recordio chunk: it begins with {magic:#010x} instead of {_MAGIC:#010x}")
    known = {compressor.value for compressor in Compressor}
    if third in known:
        return _Chunk(first, second, Compressor(third), fourth)
    if second in known:
        return _Chunk(fourth, first, Compressor(second), third)
    raise ValueError(f"unknown compressor {third}; 0 is none, 1 snappy, 2 gzip")


def _split(data: memoryview, count: int) -> Iterator[bytes]:
    for _ in _ranges(data, count):  # the whole chunk is checked before its first record is given away
        pass
    for start, end in _ranges(data, count):
        yield bytes(data[start:end])


def _ranges(data: memoryview, count: int) -> Iterator[tuple[int, int]]:
    position, size = 0, len(data)
    for number in range(count):
        start = position + _LENGTH.size
        if start > size:
            raise ValueError(f"it holds {number} records, but the header says {count}")
        (length,) = _LENGTH.unpack_from(data, position)
        position = start + length
        if position > size:
            raise ValueError(f"record {number} is {length} bytes long, but {size - start} bytes are left")
        yield start, position
    if position != size:
        raise ValueError(f"{size - position} bytes follow its {count} records")


def _compress(data: bytes, compressor: Compressor) -> bytes:
    if compressor is Compressor.Snappy:
        return snappy_streams.compress(data)
    if compressor is Compressor.Gzip:
        machine = zlib.compressobj(wbits=31)
        return machine.compress(data) + machine.flush()
    return data


def _decompress(data: bytes, compressor: Compressor) -> bytes | bytearray | memoryview:
    if compressor is Compressor.Snappy:
        return snappy_streams.decompress(data)
    if compressor is Compressor.NoCompress:
        return data
    machine = zlib.decompressobj(wbits=31)
    try:
        found = machine.decompress(data, _LARGEST_GZIP)
    except zlib.error as error:
        raise ValueError(f"its gzip data is damaged: {error}") from error
    if machine.unconsumed_tail:
        raise ValueError(f"it holds more than {_LARGEST_GZIP} bytes; split it, or compress it with snappy")
    if not machine.eof or machine.unused_data:
        raise ValueError("its gzip data is damaged: it ends too early or too late")
    return found
