"""Writes to remote file systems: content is staged on this machine in full before the first byte is sent.

Object stores (S3 and the like) show a file when its upload is complete. Elsewhere a file is uploaded under a hidden
name and renamed, and where folders can be renamed too (HDFS, SFTP, SMB) a new folder appears with all its files.
On the others its files appear one by one, in order: write last what readers look for first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from refluid.faults import fault_point
from refluid.files.storage import RemotePath, partial_name
from refluid.files.streams import create, naming

_SHOW_WHOLE_UPLOADS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "r2"}
_RENAME_FOLDERS = {"hdfs", "viewfs", "webhdfs", "webHDFS", "sftp", "ssh", "smb"}

Writers = Mapping[str, Callable[[BinaryIO], object]]


@contextmanager
def upload(target: RemotePath) -> Iterator[BinaryIO]:
    """Yields a stream whose content appears at ``target`` if the block succeeds, and not at all otherwise."""
    with tempfile.TemporaryDirectory() as stage:
        content = Path(stage, "content")
        with create(content, content, target) as stream:
            yield stream
        send_file(content, target)


def upload_together(folder: RemotePath, writers: Writers) -> None:
    """Writes one file per name into a folder: all at once if its file system can rename folders."""
    with tempfile.TemporaryDirectory() as stage:
        contents = {name: Path(stage, str(i)) for i, name in enumerate(writers)}
        for name, write in writers.items():
            with create(contents[name], contents[name], folder / name) as stream:
                write(stream)
        if not (_protocols(folder) & _RENAME_FOLDERS and _send_folder(contents, folder)):
            for name, content in contents.items():
                send_file(content, folder.joinpath(*name.split("/")))


def _send_folder(contents: Mapping[str, Path], folder: RemotePath) -> bool:
    """Makes a folder appear with all its files; returns False if it already exists."""
    if folder.exists():
        return False
    partial = partial_name(folder)
    try:
        for name, content in contents.items():
            target = partial.joinpath(*name.split("/"))
            target.system.makedirs(target.parent.path, exist_ok=True)
            _copy(content, target)
        with suppress(FileExistsError):
            folder.system.mv(partial.path, folder.path, recursive=True)
        fault_point("renamed")
        return not partial.exists()
    finally:
        partial.remove()


def send_file(content: Path, target: RemotePath) -> None:
    """Copies a local file to ``target``, where it appears whole or not at all."""
    target.system.makedirs(target.parent.path, exist_ok=True)
    if _protocols(target) & _SHOW_WHOLE_UPLOADS:
        _copy(content, target)
        return
    partial = partial_name(target)
    try:
        _copy(content, partial)
        _rename(partial, target)
        fault_point("renamed")
    except BaseException:
        partial.remove()
        raise


def _copy(content: Path, target: RemotePath) -> None:
    fault_point("upload")
    with naming(content, target):
        target.system.put_file(str(content), target.path)
    fault_point("uploaded")


def _rename(partial: RemotePath, target: RemotePath) -> None:
    """Renames a file. Some file systems refuse to, or do nothing, while the name is taken."""
    with suppress(FileExistsError):
        partial.system.mv(partial.path, target.path)
    if partial.exists():
        target.remove()
        partial.system.mv(partial.path, target.path)


def _protocols(path: RemotePath) -> set[str]:
    protocol = path.system.protocol
    return {protocol} if isinstance(protocol, str) else set(protocol)
