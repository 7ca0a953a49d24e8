"""A write-ahead log: records that are on disk before the server replies, and read again when it restarts.

A log is a sequence of files, ``log.000000000012``; the number is that of the first record. A file is records, one after
the other:

    uint32    CRC-32 of what follows, without the length
    uint64    bytes of the content
    uint64    the number of the record
    content

A record that was cut off by a crash, or does not match its checksum, ends its file: it was never confirmed, and the
next file begins with its number. A gap in the numbers ends the log. Records are appended without waiting; `wait`
returns when a record is on disk. One thread writes what has gathered meanwhile, and syncs once for all of it.

Next to the files, ``begin.json`` has the id of the log, which snapshots name that it continues, and the name of the
snapshot that its first record follows. A log is of use only with one of these.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from refluid.faults import fault_point
from refluid.files.writing import atomic_write, make_folder, sync_folder

_HEADER = struct.Struct("<IQQ")
_PREFIX, _BEGINNING = "log.", "begin.json"
_AT_ONCE = 512  # buffers of one system call; Linux takes 1024


class LogError(RuntimeError):
    """The log cannot be written; what was not confirmed may be lost."""


@dataclass(frozen=True)
class Beginning:
    """How a log began.

    Attributes:
      id: of the log.
      after: the name of the snapshot that its first record follows; "" if it began before there was one.
    """

    id: str
    after: str


class Log:
    """The log of one server.

    Args:
      folder: where its files are.
      first: the number of the first record that will be appended; files from there on belong to nothing, and go.
      after: the name of the snapshot that a new log follows; None to continue the one that is there.
      syncs: whether records survive the machine, and not only the process.
      most: bytes of unwritten records; whoever would append more waits.
    """

    def __init__(self, folder: Path, first: int, *, after: str | None = "", syncs: bool = True, most: int = 256 << 20):
        self._folder, self._syncs, self._most = folder, syncs, most
        self._changed = threading.Condition()
        self._next = first  # the number of the next record
        self._done = first - 1  # the last record on disk
        self._waiting: list[tuple[int, list[Any], int]] = []  # number, buffers and bytes of records to be written
        self._held = 0  # bytes of these
        make_folder(folder)
        for path in _files(folder):
            if _number(path) >= first:
                fault_point("remove")
                path.unlink()
        begun = read_beginning(folder) if after is None else None
        self.id = _begin(folder, after or "") if begun is None else begun.id
        self._bytes = sum(path.stat().st_size for path in _files(folder))
        self._rotates = False
        self._closed = self._ended = False
        self._failure: Exception | None = None
        self.writing_since: float | None = None  # when what is being written was taken
        self._file = self._open(first)
        self._thread = threading.Thread(target=self._write_loop, name="log", daemon=True)
        self._thread.start()

    @property
    def last(self) -> int:
        """The number of the last record that was appended."""
        return self._next - 1

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return self._bytes

    @property
    def unwritten(self) -> int:
        """The size of the records that are not on disk yet."""
        return self._held

    def append(self, buffers: Sequence[Any]) -> int:
        """Adds a record, which is not on disk yet; returns its number. The buffers must not change afterwards."""
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        with self._changed:
            self._changed.wait_for(lambda: self._held < self._most or self._failure is not None or self._closed)
            self._check()
            number = self._next
            self._next += 1
            self._waiting.append((number, list(buffers), size))
            self._held += size
            self._changed.notify_all()
            return number

    def wait(self, number: int) -> None:
        """Returns when a record, and all before it, are on disk."""
        if self._done >= number:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._done >= number or self._failure is not None or self._ended)
            if self._done < number:
                self._check()

    def rotate(self) -> int:
        """Has the next record begin a new file; returns its number. What is before can be dropped on its own."""
        with self._changed:
            self._waiting.append((self._next, [], -1))
            self._changed.notify_all()
            return self._next

    def drop_before(self, number: int) -> None:
        """Removes the files that hold only records before this one."""
        files = _files(self._folder)
        for path, following in pairwise(files):
            if _number(following) <= number:
                fault_point("remove")
                size = path.stat().st_size
                path.unlink()
                with self._changed:
                    self._bytes -= size

    def close(self) -> None:
        """Writes what has been appended, and ends."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._file.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise LogError(f"cannot write the log in {self._folder}: {self._failure}") from self._failure
        if self._closed:
            raise LogError(f"the log in {self._folder} is closed")

    # The writing thread

    def _write_loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._ended = True
                    self._changed.notify_all()
                    return
            self.writing_since = time.monotonic()
            try:
                self._write(batch)
                self.writing_since = None
            except Exception as error:  # noqa: BLE001 - raised to whoever appends or waits
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return

    def _write(self, batch: list[tuple[int, list[Any], int]]) -> None:
        records: list[Any] = []
        for number, buffers, size in batch:
            if size < 0:
                self._flush(records)
                records = []
                self._file.close()
                self._file = self._open(number)
                continue
            check = zlib.crc32(_HEADER.pack(0, size, number)[4:])
            for buffer in buffers:
                check = zlib.crc32(buffer, check)
            records += [_HEADER.pack(check, size, number), *buffers]
        self._flush(records)
        with self._changed:
            self._done = max([self._done, *(number for number, _, size in batch if size >= 0)])
            self._held -= sum(size for _, _, size in batch if size >= 0)
            self._changed.notify_all()

    def _flush(self, buffers: list[Any]) -> None:
        if not buffers:
            return
        fault_point("log")
        views = [memoryview(buffer).cast("B") for buffer in buffers if memoryview(buffer).nbytes]
        handle = self._file.fileno()
        while views:
            written = os.writev(handle, views[:_AT_ONCE])
            with self._changed:
                self._bytes += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]
        fault_point("logged")
        if self._syncs:
            os.fdatasync(handle)
        fault_point("log_synced")

    def _open(self, number: int) -> Any:
        path = self._folder / f"{_PREFIX}{number:012d}"
        file = path.open("wb", buffering=0)  # one of this name holds no confirmed record
        sync_folder(self._folder)
        fault_point("log_opened")
        return file


def read_log(folder: Path, first: int) -> Iterator[tuple[int, bytes]]:
    """The records of a log from a number on, as far as they are whole; numbers have no gap.

    Takes memory for one record.
    """
    expected = first
    for path in _files(folder):
        with path.open("rb") as file:
            left = path.stat().st_size
            while left >= _HEADER.size:
                header = file.read(_HEADER.size)
                check, size, number = _HEADER.unpack(header)
                left -= _HEADER.size
                if size > left:
                    break
                content = file.read(size)
                left -= size
                if zlib.crc32(content, zlib.crc32(header[4:])) != check:
                    break
                if number < expected:
                    continue
                if number > expected:
                    return
                yield number, content
                expected += 1


def read_beginning(folder: Path) -> Beginning | None:
    """How the log in a folder began, if there is one."""
    try:
        return Beginning(**json.loads((folder / _BEGINNING).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _begin(folder: Path, after: str) -> str:
    begun = Beginning(secrets.token_hex(16), after)
    with atomic_write(folder / _BEGINNING) as stream:
        stream.write(json.dumps(asdict(begun)).encode())
    return begun.id


def remove_log(folder: Path) -> None:
    """Removes a log that nobody writes to."""
    for path in [*_files(folder), folder / _BEGINNING]:
        path.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"{_PREFIX}*") if path.name[len(_PREFIX) :].isdigit())


def _number(path: Path) -> int:
    return int(path.name[len(_PREFIX) :])
