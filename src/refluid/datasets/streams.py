"""Records of many files, parsed in threads, several files at once.

The order depends on the files and the number of threads, not on which thread is faster: chunks are taken from the open
files in turn. With one thread it is the order of the lines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from refluid.datasets.records import Records
from refluid.datasets.sources import AnySource
from refluid.readers.threads import SLOW_JOIN_TIMEOUT, Channel, Closed, join, start

_CHUNKS_AHEAD = 4  # of every file that is open

# Reads a file: (path, what to tell about an open stream) -> records, chunk by chunk.
Read = Callable[[AnySource, Callable[[Any], None]], Generator[Records]]


class RecordStream:
    """The records of some files, chunk by chunk; ``threads`` files are read at once, a thread for each."""

    def __init__(self, files: Sequence[AnySource], threads: int, read: Read):
        self._waiting, self._threads, self._read = iter(files), max(1, threads), read
        self._open: list[_FileThread] = []
        self._lock = threading.Lock()
        self._closed = False

    def __iter__(self) -> Iterator[Records]:
        active = [thread for _ in range(self._threads) for thread in self._open_next()]
        following = self._open_next()  # started early: a pipe command takes a while
        while active:
            current = active.pop(0)
            item = current.take()
            if item is not None:
                active.append(current)
                yield item
                continue
            with self._lock:
                self._open.remove(current)
            active[:0] = following
            following = self._open_next()

    def close(self) -> None:
        """Stops all threads, and the commands that they read from. May be called on any thread."""
        with self._lock:
            self._closed = True
            threads, self._open = self._open, []
        for thread in threads:
            thread.close()

    def _open_next(self) -> list[_FileThread]:
        with self._lock:
            path = None if self._closed else next(self._waiting, None)
            new = [] if path is None else [_FileThread(self._read, path)]
            self._open += new
        return new


class _FileThread:
    """A thread that reads a file a few chunks ahead."""

    def __init__(self, read: Read, path: AnySource):
        self._chunks = Channel(_CHUNKS_AHEAD)
        self._iterator = iter(self._chunks)
        self._cancel: Callable[[], None] | None = None
        self._closed = False
        self._thread = start(f"read {path}", self._run, read, path)

    def take(self) -> Records | None:
        """The next chunk, or None at the end of the file."""
        return next(self._iterator, None)

    def close(self) -> None:
        self._closed = True
        self._chunks.close()
        if self._cancel is not None:
            self._cancel()
        join(self._thread, SLOW_JOIN_TIMEOUT)

    def _run(self, read: Read, path: AnySource) -> None:
        chunks = read(path, self._opened)
        try:
            for chunk in chunks:
                self._chunks.put(replace(chunk, files=(str(path),)))
        except Closed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
            self._chunks.finish(error)
        finally:
            chunks.close()
        self._chunks.finish()

    def _opened(self, stream: Any) -> None:
        self._cancel = getattr(stream, "cancel", None)
        if self._closed and self._cancel is not None:
            self._cancel()
