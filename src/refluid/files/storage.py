"""Paths: local ones, and everything that fsspec reaches (``memory://``, ``hdfs://``, ``s3://``, …).

`at` makes a path of either kind. Remote paths have the part of `pathlib.Path` that reading needs; fsspec and its
drivers are imported only for them. They are not `os.PathLike`: a function that only handles local files must not take
``s3://bucket`` for a folder called ``s3:``.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

PARTIAL = ".partial"  # suffix of a file or folder that is not complete yet
_URL = re.compile(r"([A-Za-z][\w+.:-]*)://(.*)", re.DOTALL)


class RemotePath:
    """A file or folder on an fsspec file system."""

    def __init__(self, system: Any, path: str):
        self.system, self.path = system, path.rstrip("/") or "/"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.system, self.system._parent(self.path))

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.system, f"{self.path.rstrip('/')}/{name}")

    def joinpath(self, *names: str) -> RemotePath:
        return RemotePath(self.system, "/".join([self.path.rstrip("/"), *names]))

    def __str__(self) -> str:
        return self.system.unstrip_protocol(self.path)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def exists(self) -> bool:
        return self._fresh().exists(self.path)

    def is_file(self) -> bool:
        return self._fresh().isfile(self.path)

    def is_dir(self) -> bool:
        return self._fresh().isdir(self.path)

    def iterdir(self) -> Iterator[RemotePath]:
        """The contents of a folder; empty if it does not exist."""
        if not self.is_dir():
            return
        for found in self.system.ls(self.path, detail=False):
            if (
                path := RemotePath(self.system, found)
            ).path != self.path:  # some file systems list the folder itself as well
                yield path

    def size(self) -> int:
        return self._fresh().info(self.path)["size"]

    def open(self, mode: str = "rb") -> BinaryIO:
        """Opens a stream for reading; to write, use `refluid.files.writing`."""
        assert mode == "rb"
        return self._fresh().open(self.path, "rb")

    def read_bytes(self) -> bytes:
        return self._fresh().cat_file(self.path)

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def remove(self) -> None:
        """Removes a file, or a folder and its contents, if it exists."""
        if self.exists():
            self.system.rm(self.path, recursive=True)

    def _fresh(self) -> Any:
        """The file system, with its listing cache dropped."""
        self.system.invalidate_cache()
        return self.system


AnyPath = Path | RemotePath
SomePath = TypeVar("SomePath", Path, RemotePath)


def at(path: str | os.PathLike[str] | RemotePath) -> AnyPath:
    """Converts a user's path: ``file://`` and plain paths are local, other URLs go to fsspec.

    Raises:
      ValueError: no file system handles this kind of URL.
      ImportError: its driver needs a package that is not installed.
    """
    if isinstance(path, RemotePath):
        return path
    text = os.fspath(path)
    local = local_path(text)
    if local is not None:
        return local
    from fsspec.core import url_to_fs

    try:
        return RemotePath(*url_to_fs(text))
    except (ValueError, ImportError) as error:
        raise type(error)(f"{text}: {error}") from error


def local_path(text: str) -> Path | None:
    """The path that a plain path or a ``file://`` URL names; None for other URLs, of which nothing is opened yet."""
    match = _URL.fullmatch(text)
    if match is None:
        return Path(text)
    return Path(match[2]) if match[1] in ("file", "local") else None


def file_in(folder: str | os.PathLike[str] | RemotePath, filename: str) -> AnyPath:
    """The path of a file in a folder, which may be ""; the name may contain folders too."""
    if isinstance(folder, RemotePath):
        return folder / filename
    return at(os.path.join(folder, filename))


def partial_name(path: SomePath) -> SomePath:
    """A hidden name next to ``path``, for content that is not complete yet."""
    # The hidden name must not exceed the length that the file system allows.
    return path.parent / f".{path.name[:200]}.{secrets.token_hex(6)}{PARTIAL}"


def files_below(folder: AnyPath) -> list[str]:
    """The files in a folder and its subfolders, as sorted relative paths."""
    found = []
    for path in folder.iterdir():
        if path.is_dir():
            found += [f"{path.name}/{name}" for name in files_below(path)]
        elif path.is_file():
            found.append(path.name)
    return sorted(found)
