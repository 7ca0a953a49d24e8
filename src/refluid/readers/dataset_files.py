"""Dataset files: paths, or the content itself where data is synthetic. Archives are read member by member."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

Source = str | bytes


def opened(source: Source) -> IO[bytes]:
    """A stream of a file's content."""
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def named(source: Source) -> str:
    """What messages call a file."""
    return "the synthetic data" if isinstance(source, bytes) else source


def text_lines(source: Source) -> list[str]:
    """The lines of a text file, without spaces around them."""
    with opened(source) as stream:
        return [line.strip() for line in stream.read().decode("utf-8").splitlines()]


def tar_members(source: Source, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yields (name, stream) of the wanted files of a tar, in its order; a stream is valid until the next one.

    Raises:
      ValueError: the file is no tar archive, is damaged, or has no such member.
    """
    found = False
    try:
        with opened(source) as file, tarfile.open(fileobj=file) as archive:
            for member in archive:
                content = archive.extractfile(member) if is_wanted(member.name) else None
                if content is not None:
                    found = True
                    yield member.name, content
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{named(source)} is not a tar archive that can be read: {error}") from error
    if not found:
        raise ValueError(f"{named(source)} holds none of the files that are expected in it")


def tar_member(source: Source, ending: str) -> Iterator[bytes]:
    """Yields the lines of all files of a tar whose names end like this, as bytes with their line ends."""
    for _, stream in tar_members(source, lambda name: name.endswith(ending)):
        yield from stream


@contextmanager
def opened_zip(source: Source) -> Iterator[zipfile.ZipFile]:
    """Yields a zip archive.

    Raises:
      ValueError: the file is no zip archive, is damaged, or has no such member.
    """
    try:
        with opened(source) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise ValueError(f"{named(source)} is not a zip archive that can be read: {error}") from error
