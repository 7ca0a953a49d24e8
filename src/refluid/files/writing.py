"""Writes that are atomic: a crash, a full disk or a kill leaves the old content or the new, never a mixture.

`atomic_write` replaces one file, `write_together` several files of a folder, on this machine or on a remote file system
(see `refluid.files.remote_writing`). A killed process may also leave hidden names that end in ``.partial``; nothing
reads them, and they are safe to delete.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from refluid.faults import fault_point
from refluid.files.folder_locks import locked
from refluid.files.remote_writing import Writers, upload, upload_together
from refluid.files.storage import AnyPath, RemotePath, at, files_below, partial_name
from refluid.files.streams import c_function, create, naming, to_disk


@contextmanager
def atomic_write(path: str | os.PathLike[str] | RemotePath) -> Iterator[BinaryIO]:
    """Yields a stream whose content appears at ``path`` if the block succeeds, and not at all otherwise."""
    place = at(path)
    if isinstance(place, RemotePath):
        with upload(place) as stream:
            yield stream
        return
    target = Path(os.path.realpath(place))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_name(target)
    try:
        with create(partial, target) as stream:
            yield stream
            to_disk(stream, target)
        fault_point("synced")
        with locked(target.parent):
            os.replace(partial, target)
        fault_point("renamed")
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def write_together(folder: str | os.PathLike[str] | RemotePath, writers: Writers) -> None:
    """Writes one file per name into ``folder``, each by calling its writer with a stream.

    Every file is complete and on disk before the first of them is renamed. A new folder appears with all its files, or
    not at all. An existing folder is swapped as a whole: at every moment it has all old files or all new ones, and
    files with other names stay. Threads and processes may write to the same folder; they take turns. Where folders
    cannot be swapped (the system has no such call, the folder has unrelated subfolders, belongs to another user, or is
    the working directory), files are renamed one by one: a kill in the middle leaves old and new files side by side,
    each of them whole.

    Args:
      writers: one function per file name, called in order.

    Raises:
      ValueError: a name points outside the folder.
      OSError: a write failed; the error names the file.
    """
    place = at(folder)
    for name in writers:
        path_inside(place, name)
    if isinstance(place, RemotePath):
        return upload_together(place, writers)
    target = Path(os.path.realpath(place))
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or _can_be_swapped(target, writers):
        with suppress(_CannotSwap):
            return _write_folder(target, writers)
    _write_in_place(target, writers)


def writer_of(content: bytes) -> Callable[[BinaryIO], object]:
    """A writer of these bytes, for `write_together`."""
    return lambda stream: stream.write(content)


def path_inside(folder: str | os.PathLike[str] | RemotePath, name: str) -> AnyPath:
    """The path of ``name`` in ``folder``; raises ValueError for names that point elsewhere, as in a forged model."""
    parts = name.split("/")
    if not name or "\0" in name or ".." in parts or "." in parts or "" in parts or "\\" in name:
        raise ValueError(f"{name!r} is not a name for a file in {folder}")
    return at(folder).joinpath(*parts)


class _CannotSwap(Exception):
    """The folder must be written file by file."""


def _can_be_swapped(folder: Path, writers: Writers) -> bool:
    """Whether a new folder can replace this one: it is ours, holds plain files, and is not the working directory."""
    if _renameat2() is None or not folder.is_dir() or not os.access(folder.parent, os.W_OK):
        return False
    if folder.stat().st_uid != os.geteuid() or os.path.samefile(folder, os.curdir):
        return False
    with os.scandir(folder) as entries:
        return all(
            _is_rewritten(Path(entry.path), folder, writers)
            if entry.is_dir(follow_symlinks=False)
            else entry.is_file(follow_symlinks=False)
            for entry in entries
        )


def _is_rewritten(inner: Path, folder: Path, writers: Writers) -> bool:
    """Whether a subfolder holds only files that will be written again."""
    folders = {parent.as_posix() for name in writers for parent in PurePosixPath(name).parents}
    return all(
        path.relative_to(folder).as_posix() in (folders if path.is_dir() and not path.is_symlink() else writers)
        for path in (inner, *inner.rglob("*"))
    )


def _write_folder(folder: Path, writers: Writers) -> None:
    """Writes a folder next to ``folder`` and puts it in its place."""
    stage = partial_name(folder)
    try:
        with naming(folder):
            stage.mkdir()
        for name, write in writers.items():
            _write_file(stage / name, write, folder / name)
        for made in {(stage / name).parent for name in writers} | {stage}:
            sync_folder(made)
        fault_point("synced")
        if not _rename_to_free(stage, folder):
            _swap_in(stage, folder, writers)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _rename_to_free(stage: Path, folder: Path) -> bool:
    """Renames a folder, unless a folder with files already has the name."""
    try:
        if not folder.exists():
            os.rename(stage, folder)
            fault_point("renamed")
            return True
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # another process made it meanwhile
            raise
    return False


def _swap_in(stage: Path, folder: Path, writers: Writers) -> None:
    # Both are locked: other processes can reach the new one as soon as it is swapped in.
    with locked(folder), locked(stage):
        if not _can_be_swapped(folder, writers):
            raise _CannotSwap
        stage.chmod(stat.S_IMODE(folder.stat().st_mode))
        _link_others(folder, stage, writers)
        sync_folder(stage)
        fault_point("rename")
        _swap(stage, folder)
        fault_point("renamed")
        _rescue_others(stage, folder, writers)


def _link_others(folder: Path, stage: Path, writers: Writers) -> None:
    for other in files_below(folder):
        if other not in writers:
            try:
                os.link(folder / other, stage / other)
            except OSError as error:
                raise _CannotSwap from error


def _rescue_others(old: Path, folder: Path, writers: Writers) -> None:
    """Moves over files that a writer without locks put into the old folder after the others were linked."""
    for other in files_below(old):
        if other not in writers and not _same_file(old / other, folder / other):
            (folder / other).parent.mkdir(parents=True, exist_ok=True)
            os.replace(old / other, folder / other)


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:
        return False


def _write_in_place(folder: Path, writers: Writers) -> None:
    partials: dict[Path, Path] = {}
    try:
        for name, write in writers.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            partials[target] = partial_name(target)
            _write_file(partials[target], write, target)
        with locked(folder):
            for target, partial in partials.items():
                fault_point("rename")
                os.replace(partial, target)
    except BaseException:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
        raise
    for parent in {target.parent for target in partials}:
        sync_folder(parent)


def _write_file(path: Path, write: Callable[[BinaryIO], object], shown: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with create(path, shown) as stream:
        write(stream)
        fault_point("written")
        to_disk(stream, shown)
    fault_point("synced")


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, all of them on disk."""
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Names are on disk only when their folder is; not every system can sync one."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap(one: Path, other: Path) -> None:
    """Exchanges two folders in one system call."""
    call = _renameat2()
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if call is None or call(here, os.fsencode(one), here, os.fsencode(other), exchange) != 0:
        raise _CannotSwap


@cache
def _renameat2() -> Any:
    return c_function("renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
