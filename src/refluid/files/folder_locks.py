"""Locks that let one process at a time rename files in a folder, even if the folder itself is swapped for another.

A lock is an advisory ``flock`` on the folder, so nothing is left behind when its holder dies. It is held while names
change, never while content is written. On systems without ``flock`` there is no locking.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not on this system
    fcntl: Any = None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the lock of the folder that is at this path now; retries if it was swapped while waiting."""
    handle = _lock(folder)
    while handle is not None and not _is_at(handle, folder):
        _unlock(handle)
        handle = _lock(folder)
    try:
        yield
    finally:
        if handle is not None:
            _unlock(handle)


HELD = ".lock"  # the file whose lock a `HeldFolder` has


class FolderInUseError(RuntimeError):
    """Another process works in this folder."""


class HeldFolder:
    """A folder that no other process holds, until it is closed or this process ends.

    Raises:
      FolderInUseError: another one holds it.
    """

    def __init__(self, folder: Path):
        self._folder, self._handle = folder, None
        if fcntl is None:
            return
        self._handle = os.open(folder / HELD, os.O_RDWR | os.O_CREAT)  # the folder's own lock is for renaming
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise FolderInUseError(
                f"another process uses {folder}: is a server of the same endpoint still running? End it, or give this "
                "job a folder of its own"
            ) from None
        except OSError:  # a file system without locks
            self.close()

    def remove(self) -> None:
        """Removes the folder, if it is empty."""
        (self._folder / HELD).unlink(missing_ok=True)
        with suppress(OSError):
            self._folder.rmdir()

    def close(self) -> None:
        """Lets others have it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _lock(folder: Path) -> int | None:
    if fcntl is None:
        return None
    with suppress(OSError):  # missing, not accessible, or on a file system without locks
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            os.close(handle)
            raise
        return handle
    return None


def _unlock(handle: int) -> None:
    fcntl.flock(handle, fcntl.LOCK_UN)  # a process forked meanwhile has the handle too and would keep the lock
    os.close(handle)


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder))
    except FileNotFoundError:
        return False
