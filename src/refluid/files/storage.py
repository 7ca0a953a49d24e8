"""Where files are: folders of this machine, and whatever fsspec reaches (``memory://``, ``hdfs://``, ``s3://``, …).

`at` makes a path of either kind. Those elsewhere have the part of `pathlib.Path` that reading needs; fsspec and its
drivers are imported only for them. They are no `os.PathLike`: a function that knows only this machine must not take
``s3://bucket`` for a folder called ``s3:``.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

PARTIAL = ".partial"  # how the name of a file or folder ends that is not complete yet
_URL = re.compile(r"([A-Za-z][\w+.:-]*)://(.*)", re.DOTALL)


class RemotePath:
    """A file or folder that an fsspec file system has."""

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
        """What is in a folder; nothing where there is none."""
        if not self.is_dir():
            return
        for found in self.system.ls(self.path, detail=False):
            if (path := RemotePath(self.system, found)).path != self.path:  # some list the folder itself, too
                yield path

    def size(self) -> int:
        return self._fresh().info(self.path)["size"]

    def open(self, mode: str = "rb") -> BinaryIO:
        """A stream to read from; `refluid.files.writing` is there to write."""
        assert mode == "rb"
        return self._fresh().open(self.path, "rb")

    def read_bytes(self) -> bytes:
        return self._fresh().cat_file(self.path)

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def remove(self) -> None:
        """Removes a file, or a folder with all that is in it; what is not there is no error."""
        if self.exists():
            self.system.rm(self.path, recursive=True)

    def _fresh(self) -> Any:
        """The file system, which does not remember what was there before."""
        self.system.invalidate_cache()
        return self.system


AnyPath = Path | RemotePath
SomePath = TypeVar("SomePath", Path, RemotePath)


def at(path: str | os.PathLike[str] | RemotePath) -> AnyPath:
    """The path a user means: ``file://`` and plain paths are of this machine, other URLs are fsspec's.

    Raises:
      ValueError: no file system has this kind of URL.
      ImportError: the one that has it needs a package that is not installed.
    """
    if isinstance(path, RemotePath):
        return path
    text = os.fspath(path)
    match = _URL.fullmatch(text)
    if match is None:
        return Path(text)
    if match[1] in ("file", "local"):
        return Path(match[2])
    from fsspec.core import url_to_fs

    try:
        return RemotePath(*url_to_fs(text))
    except (ValueError, ImportError) as error:
        raise type(error)(f"{text}: {error}") from error


def file_in(folder: str | os.PathLike[str] | RemotePath, filename: str) -> AnyPath:
    """The file a user means with a folder, perhaps "", and a name that may begin with folders of its own."""
    if isinstance(folder, RemotePath):
        return folder / filename
    return at(os.path.join(folder, filename))


def partial_name(path: SomePath) -> SomePath:
    """A hidden name beside ``path``, for what will be there when it is complete."""
    # Names may be as long as the file system allows; the hidden one must not be longer.
    return path.parent / f".{path.name[:200]}.{secrets.token_hex(6)}{PARTIAL}"


def files_below(folder: AnyPath) -> list[str]:
    """The files in a folder and its folders, by their paths within it, sorted."""
    found = []
    for path in folder.iterdir():
        if path.is_dir():
            found += [f"{path.name}/{name}" for name in files_below(path)]
        elif path.is_file():
            found.append(path.name)
    return sorted(found)
