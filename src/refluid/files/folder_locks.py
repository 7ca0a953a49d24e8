"""One process at a time changes the names in a folder, even where the folder itself is exchanged for another.

A lock is the system's advisory one (``flock``) on the folder, so nothing is left behind when its holder dies. It is
held while names change, never while content is written. Where the system has no such locks, there are none.
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
    """Holds the lock of what is at ``folder`` now: whoever waited for one that was exchanged meanwhile tries again."""
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
    with suppress(OSError):  # absent, not ours to open, or on a file system without locks
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            os.close(handle)
            raise
        return handle
    return None


def _unlock(handle: int) -> None:
    fcntl.flock(handle, fcntl.LOCK_UN)  # a process forked meanwhile has the handle too, and must not keep the lock
    os.close(handle)


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder))
    except FileNotFoundError:
        return False
