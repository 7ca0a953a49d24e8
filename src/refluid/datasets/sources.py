"""Opens data files: local ones and those that fsspec reaches, compressed ones, and the output of commands.

The bytes arrive in chunks of whole lines, so that memory stays bounded whatever the size of a file.
"""

from __future__ import annotations

import gzip
import io
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refluid.datasets.commands import CommandStream
from refluid.files.storage import RemotePath

_CHUNK_SIZE = 1 << 19
_COMMAND_CHUNK_SIZE = 1 << 18  # smaller, because a slow command would let everyone wait for the first chunk
_NEWLINE = 10


@dataclass(frozen=True)
class Download:
    """A file that a shell command prints, given its name."""

    command: str
    name: str

    def __str__(self) -> str:
        return self.name


AnySource = Path | RemotePath | Download


def open_stream(source: AnySource, pipe_command: str = "cat", *, gzipped: bool | None = None) -> Any:
    """A stream of a file's text: decompressed if it is gzipped, as .gz files are, then piped through the command."""
    data = _open(source)
    try:
        if source.name.endswith(".gz") if gzipped is None else gzipped:
            data = _Decompressed(data)
        if is_plain(pipe_command):
            return data
        return CommandStream(pipe_command, data, str(source))
    except BaseException:
        data.close()
        raise


def is_plain(pipe_command: str) -> bool:
    """Whether a command leaves files as they are."""
    return pipe_command.strip() in ("", "cat")


def read_chunks(stream: Any, size: int | None = None) -> Iterator[np.ndarray]:
    """Whole lines of a stream, in chunks of at most ``size`` bytes or twice the longest line so far.

    A chunk is only valid until the next one is read.
    """
    size = size or (_COMMAND_CHUNK_SIZE if isinstance(stream, CommandStream) else _CHUNK_SIZE)
    buffer, filled, ended = bytearray(size), 0, False
    while not ended:
        if filled == len(buffer) - 1:  # a line that is longer than the buffer
            buffer = buffer + bytes(len(buffer))
        filled, ended = _fill(stream, memoryview(buffer), filled)
        if ended and filled and buffer[filled - 1] != _NEWLINE:
            buffer[filled] = _NEWLINE
            filled += 1
        lines_end = buffer.rfind(b"\n", 0, filled) + 1
        if lines_end == 0:
            continue
        yield np.frombuffer(buffer, np.uint8, lines_end)
        rest = filled - lines_end
        buffer[:rest] = buffer[lines_end:filled]
        filled = rest


def _open(source: AnySource) -> Any:
    if isinstance(source, Download):
        return CommandStream(f"{source.command} {shlex.quote(source.name)}", io.FileIO(os.devnull), source.name)
    if isinstance(source, RemotePath):
        return source.open("rb")
    return io.FileIO(source)


def _fill(stream: Any, buffer: memoryview, filled: int) -> tuple[int, bool]:
    """Reads until the buffer is full but for the newline that a last line may lack: (filled, whether it has ended)."""
    while filled < len(buffer) - 1:
        count = stream.readinto(buffer[filled:-1])
        if not count:
            return filled, True
        filled += count
    return filled, False


class _Decompressed(gzip.GzipFile):
    """A .gz file that closes the file below."""

    def __init__(self, data: Any):
        super().__init__(fileobj=data, mode="rb")
        self._below = data

    def close(self) -> None:
        super().close()
        self._below.close()
