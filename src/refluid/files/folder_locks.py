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
