"""Writing to file systems elsewhere: content is complete on this machine before a byte of it leaves.

Object stores (s3 and the like) show a file when its upload is complete. Elsewhere a file is uploaded under a hidden
name and then renamed, and where folders can be renamed too (HDFS, SFTP, SMB) a new folder appears with all files in it.
On the others its files appear one after the other, in their order: write last what readers look for first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from refluid.faults import fault_point
from refluid.files.storage import RemotePath, partial_name

_SHOW_WHOLE_UPLOADS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "r2"}
_RENAME_FOLDERS = {"hdfs", "viewfs", "webhdfs", "webHDFS", "sftp", "ssh", "smb"}

Writers = Mapping[str, Callable[[BinaryIO], object]]


@contextmanager
def upload(target: RemotePath) -> Iterator[BinaryIO]:
    """A stream whose content appears at ``target`` when the block ends well, and not at all otherwise."""
    with tempfile.TemporaryDirectory() as stage:
        content = Path(stage, "content")
        with content.open("wb") as stream:
            yield stream
        send_file(content, target)


def upload_together(folder: RemotePath, writers: Writers) -> None:
    """Writes one file per name into a folder, as far as its file system can do that at once."""
    with tempfile.TemporaryDirectory() as stage:
        contents = {name: Path(stage, str(i)) for i, name in enumerate(writers)}
        for name, write in writers.items():
            with contents[name].open("wb") as stream:
                write(stream)
        if not (_protocols(folder) & _RENAME_FOLDERS and _send_folder(contents, folder)):
            for name, content in contents.items():
                send_file(content, folder.joinpath(*name.split("/")))


def _send_folder(contents: Mapping[str, Path], folder: RemotePath) -> bool:
    """Makes a folder appear with all its files; False if there is one."""
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
    """Copies a file of this machine to ``target``, where it appears whole or not at all."""
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
    target.system.put_file(str(content), target.path)
    fault_point("uploaded")


def _rename(partial: RemotePath, target: RemotePath) -> None:
    """Gives a file its name. Some file systems refuse to, or do nothing, while another file has it."""
    with suppress(FileExistsError):
        partial.system.mv(partial.path, target.path)
    if partial.exists():
        target.remove()
        partial.system.mv(partial.path, target.path)


def _protocols(path: RemotePath) -> set[str]:
    protocol = path.system.protocol
    return {protocol} if isinstance(protocol, str) else set(protocol)
