"""The file of one server's rows of a table: chunks, each with a checksum.

All integers are little-endian. A file begins with the 8 bytes ``RFROWS 1`` and the 32 characters of its snapshot's id.
Then come chunks:

    4 bytes   what it holds: PAST, GONE, ROWS, or END of the file
    uint32    CRC-32 of its content
    uint64    how many
    uint64    bytes of its content
    uint32    CRC-32 of the 24 bytes before

PAST: learning rates and what was made of them, as `refluid.runtime.tables.history` writes them (float64). GONE: ids of
rows that were given up since the base of a delta (int64). ROWS: records as `refluid.runtime.tables.records` describes
them. The checksum of a file, which is in the manifest, is the CRC-32 of all that is not content. A reader takes memory
for one chunk: `MOST` bytes, or one row.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy as np

from refluid.files.storage import AnyPath, RemotePath
from refluid.runtime.tables.records import RecordForm

PAST, GONE, ROWS, END = b"PAST", b"GONE", b"ROWS", b"END "
MOST = 16 << 20  # bytes of a chunk, unless a single row has more
_BEGIN = b"RFROWS 1"
_CHUNK = struct.Struct("<4sIQQ")
_CHECK = struct.Struct("<I")


class TableFileError(ValueError):
    """A file of a table is missing, damaged, or does not belong to the others; the message names it."""


@dataclass(frozen=True)
class Part:
    """What a manifest says of the file of one server: the shards it is of, what it holds, and its checksum."""

    name: str
    start: int
    end: int
    rows: int
    gone: int
    step: int
    bytes: int
    checksum: int
    lowest: int | None = None  # the smallest and largest id of its rows
    highest: int | None = None

    def describe(self) -> dict[str, Any]:
        """The part as plain data."""
        return asdict(self)


class PartWriter:
    """Writes the file of one server.

    Args:
      snapshot: the id of the snapshot.
    """

    def __init__(self, stream: BinaryIO, snapshot: str):
        self._stream, self._bytes, self._checksum = stream, 0, 0
        self._counts = {PAST: 0, GONE: 0, ROWS: 0}
        self._range: tuple[int, int] | None = None
        self._write_checked(_BEGIN + snapshot.encode("ascii"))

    def write_numbers(self, kind: bytes, numbers: np.ndarray) -> None:
        """Writes what is known of earlier steps, or the ids of rows that were given up."""
        for begin in range(0, len(numbers), MOST // 8):
            self._write_chunk(kind, numbers[begin : begin + MOST // 8])

    def write_rows(self, form: RecordForm, parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Writes ids and records, as a snapshot yields them; small parts share a chunk."""
        at_once, held, count = max(1, MOST // form.bytes), [], 0
        for ids, records in parts:
            if not len(ids):
                continue
            lowest, highest = int(ids.min()), int(ids.max())
            before = self._range or (lowest, highest)
            self._range = min(before[0], lowest), max(before[1], highest)
            held.append(records)
            count += len(records)
            while count >= at_once:
                joined = np.concatenate(held) if len(held) > 1 else held[0]
                self._write_chunk(ROWS, joined[:at_once])
                held, count = [joined[at_once:]], count - at_once
        if count:
            self._write_chunk(ROWS, np.concatenate(held))

    def finish(self, name: str, start: int, end: int, step: int) -> Part:
        """Ends the file; returns what a manifest says of it."""
        self._write_chunk(END, np.empty(0, np.int64))
        counts, ids = self._counts, self._range or (None, None)
        return Part(name, start, end, counts[ROWS], counts[GONE], step, self._bytes, self._checksum, *ids)

    def _write_chunk(self, kind: bytes, values: np.ndarray) -> None:
        content = np.ascontiguousarray(values).data.cast("B") if len(values) else b""
        header = _CHUNK.pack(kind, zlib.crc32(content), len(values), len(content))
        self._write_checked(header + _CHECK.pack(zlib.crc32(header)))
        self._stream.write(content)
        self._bytes += len(content)
        if kind in self._counts:
            self._counts[kind] += len(values)

    def _write_checked(self, data: bytes) -> None:
        self._stream.write(data)
        self._bytes += len(data)
        self._checksum = zlib.crc32(data, self._checksum)


def read_part(path: AnyPath, part: Part, snapshot: str, form: RecordForm) -> Iterator[tuple[bytes, np.ndarray]]:
    """The chunks of a file: what each holds, and the numbers or records.

    Raises:
      TableFileError: the file is not what its manifest says; chunks that were returned before are sound in themselves.
    """
    size = size_of(path, part)
    with path.open("rb") as stream:
        yield from _Reading(stream, path, size, part, form).chunks(snapshot)


def size_of(path: AnyPath, part: Part) -> int:
    """The size of a file, which is the one that its manifest says."""
    if not path.is_file():
        raise TableFileError(f"{path} is missing; a snapshot of a table consists of its manifest and all of its parts")
    size = path.size() if isinstance(path, RemotePath) else path.stat().st_size
    if size != part.bytes:
        raise TableFileError(f"{path} has {size:,} bytes; its manifest says {part.bytes:,}")
    return size


class _Reading:
    """A file while it is read."""

    def __init__(self, stream: BinaryIO, path: AnyPath, size: int, part: Part, form: RecordForm):
        self._stream, self._path, self._left, self._part, self._form = stream, path, size, part, form
        self._checksum = 0

    def chunks(self, snapshot: str) -> Iterator[tuple[bytes, np.ndarray]]:
        if self._take_checked(8) != _BEGIN:
            raise TableFileError(f"{self._path} is not a file of a table's rows, or of a newer version")
        found = self._take_checked(32)
        if found != snapshot.encode("ascii"):
            raise TableFileError(f"{self._path} belongs to another snapshot ({found.decode('ascii', 'replace')})")
        counts = {PAST: 0, GONE: 0, ROWS: 0}
        while True:
            kind, values = self._next_chunk()
            if kind == END:
                break
            counts[kind] += len(values)
            yield kind, values
        self._check(self._left == 0, f"goes on for {self._left:,} bytes after its end")
        self._check(self._checksum == self._part.checksum, "does not have the checksum of its manifest")
        self._check((counts[ROWS], counts[GONE]) == (self._part.rows, self._part.gone), "lacks rows, or has too many")

    def _next_chunk(self) -> tuple[bytes, np.ndarray]:
        header = self._take_checked(_CHUNK.size)
        (check,) = _CHECK.unpack(self._take_checked(_CHECK.size))
        self._check(zlib.crc32(header) == check, "is damaged between two chunks")
        kind, checksum, count, size = _CHUNK.unpack(header)
        one = {PAST: 8, GONE: 8, ROWS: self._form.bytes, END: 0}.get(kind)
        self._check(one is not None, f"has a chunk of an unknown kind {kind!r}")
        assert one is not None
        fits = size == one * count and size <= max(MOST, one)
        self._check(fits, f"has a chunk of {count:,} that takes {size:,} bytes")
        content = self._take(size)
        self._check(zlib.crc32(content) == checksum, f"is damaged: a chunk of {count:,} does not match its checksum")
        if kind == ROWS:
            return kind, np.frombuffer(content, np.uint32).reshape(count, self._form.words)
        return kind, np.frombuffer(content, np.float64 if kind == PAST else np.int64)

    def _take_checked(self, size: int) -> bytes:
        data = self._take(size)
        self._checksum = zlib.crc32(data, self._checksum)
        return data

    def _take(self, size: int) -> bytes:
        self._check(size <= self._left, f"ends where {size:,} more bytes should be")
        data = self._stream.read(size)
        self._check(len(data) == size, "became shorter while it was read")
        self._left -= size
        return data

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            raise TableFileError(f"{self._path} {problem}")
