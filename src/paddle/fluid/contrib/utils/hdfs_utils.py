"""Fluid's client of a Hadoop file system, on top of fsspec: it needs no ``hadoop`` command.

It works on any file system that fsspec knows, ``fs.default.name`` says which: ``hdfs://name:port``, ``webhdfs://…``,
``s3://bucket``, ``file:///folder``.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from refluid.files.remote_writing import send_file
from refluid.files.storage import RemotePath, partial_name

__all__ = ["HDFSClient", "multi_download", "multi_upload"]


class HDFSClient:
    """Copies files between this machine and a file system elsewhere. Failures are warned about and returned as False.

    Args:
      hadoop_home: where Hadoop is; its native library is looked for there.
      configs: ``fs.default.name`` is the URL of the file system, ``hadoop.job.ugi`` is "user,password".
    """

    def __init__(self, hadoop_home: str | None, configs: Mapping[str, str] | None):
        from fsspec.core import url_to_fs

        configs = dict(configs or {})
        url = configs.get("fs.default.name") or configs.get("fs.defaultFS")
        if not url:
            raise ValueError("HDFSClient: configs must say where files are: {'fs.default.name': 'hdfs://name:port'}")
        if hadoop_home and os.path.isdir(hadoop_home):
            os.environ.setdefault("HADOOP_HOME", hadoop_home)
        user = configs.get("hadoop.job.ugi", "").partition(",")[0]
        self._system, root = url_to_fs(_with_user(url, user))
        self._root = root.rstrip("/")

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Copies a file there, under its name if ``hdfs_path`` is a folder; an upload appears whole or not at all."""
        if not os.path.exists(local_path):
            raise FileNotFoundError(f"HDFSClient.upload: there is no file {local_path}")
        if os.path.isdir(local_path):
            return _failed(f"upload takes a file, and {local_path} is a folder; multi_upload takes folders")
        target = self._at(hdfs_path)
        if target.is_dir():
            target = target / os.path.basename(local_path)
        if target.exists() and not overwrite:
            return _failed(f"upload: {target} exists, and overwrite is False")
        return _tried(lambda: send_file(Path(local_path), target), "upload", retry_times)

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False) -> bool:
        """Copies a file or folder into the local folder ``local_path``, where it appears when it is complete.

        With ``unzip`` a zip file is unpacked there, too.
        """
        source = self._at(hdfs_path)
        if not source.exists():
            return _failed(f"download: {source} does not exist")
        local = Path(local_path, source.name)
        if local.exists() and not overwrite:
            return _failed(f"download: {local} exists, and overwrite is False")
        local.parent.mkdir(parents=True, exist_ok=True)

        def copy() -> None:
            _get(source, local)
            if unzip and zipfile.is_zipfile(local):
                with zipfile.ZipFile(local) as packed:
                    packed.extractall(local_path)

        return _tried(copy, "download")

    def is_exist(self, hdfs_path: str | None = None) -> bool:
        """Whether there is a file or folder."""
        return self._at(hdfs_path).exists()

    def is_dir(self, hdfs_path: str | None = None) -> bool:
        """Whether there is a folder."""
        return self._at(hdfs_path).is_dir()

    def delete(self, hdfs_path: str) -> bool:
        """Removes a file, or a folder with all that is in it; what is not there is no failure."""
        return _tried(self._at(hdfs_path).remove, "delete")

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Gives a file or folder another name."""
        source, target = self._at(hdfs_src_path), self._at(hdfs_dst_path)
        if not source.exists():
            return _failed(f"rename: {source} does not exist")
        if target.exists():
            if not overwrite:
                return _failed(f"rename: {target} exists, and overwrite is False")
            target.remove()
        return _tried(lambda: self._system.mv(source.path, target.path, recursive=source.is_dir()), "rename")

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Makes a folder on this machine."""
        os.makedirs(local_path, exist_ok=True)

    def makedirs(self, hdfs_path: str) -> bool:
        """Makes a folder there, and those around it."""
        return _tried(lambda: self._system.makedirs(self._at(hdfs_path).path, exist_ok=True), "makedirs")

    def ls(self, hdfs_path: str) -> list[str]:
        """The paths of what is in a folder; none where there is no folder."""
        return sorted(self._shown(path.path) for path in self._at(hdfs_path).iterdir())

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """The paths of what is in a folder and its folders; with ``sort`` the oldest first, where that is known."""
        folder = self._at(hdfs_path)
        if not folder.exists():
            return []
        found = self._system.find(folder.path, withdirs=not only_file, detail=True)
        found.pop(folder.path, None)
        if sort:
            return [
                self._shown(path) for path, info in sorted(found.items(), key=lambda item: (_age(item[1]), item[0]))
            ]
        return [self._shown(path) for path in found]

    def _at(self, path: str | None) -> RemotePath:
        if not path:
            raise ValueError("HDFSClient: hdfs_path must be a path")
        if "://" in path:
            path = str(self._system._strip_protocol(path)).removeprefix(self._root)
        return RemotePath(self._system, f"{self._root}/{path.strip('/')}")

    def _shown(self, path: str) -> str:
        return "/" + path.removeprefix(self._root).lstrip("/")


def multi_download(
    client: HDFSClient, hdfs_path: str, local_path: str, trainer_id: int, trainers: int, multi_processes: int = 5
) -> list[str]:
    """Downloads a trainer's share of a folder, every ``trainers``-th file; returns where the files are.

    Args:
      multi_processes: how many are copied at the same time.
    """
    prefix = client._shown(client._at(hdfs_path).path)
    wanted = client.lsr(hdfs_path)[trainer_id::trainers]

    def download(path: str) -> str:
        folder = os.path.join(local_path, os.path.dirname(os.path.relpath(path, prefix)))
        client.download(path, folder)
        return os.path.normpath(os.path.join(folder, os.path.basename(path)))

    return at_once(download, wanted, multi_processes)


def multi_upload(
    client: HDFSClient,
    hdfs_path: str,
    local_path: str,
    multi_processes: int = 5,
    overwrite: bool = False,
    sync: bool = True,
) -> None:
    """Uploads every file of a local folder to the same place in ``hdfs_path``.

    Args:
      multi_processes: how many are copied at the same time.
      sync: always so: the call returns when all are there.
    """
    local = [os.path.join(folder, name) for folder, _, names in os.walk(local_path) for name in names]

    def upload(path: str) -> None:
        client.upload(f"{hdfs_path.rstrip('/')}/{Path(path).relative_to(local_path).as_posix()}", path, overwrite)

    at_once(upload, sorted(local), multi_processes)


def at_once(function: Callable[[str], Any], items: Sequence[str], count: int) -> list[Any]:
    with ThreadPoolExecutor(max(1, count)) as pool:
        return list(pool.map(function, items))


def _get(source: RemotePath, local: Path) -> None:
    partial = partial_name(local)
    try:
        source.system.get(source.path, str(partial), recursive=source.is_dir())
        _remove_local(local)
        os.rename(partial, local)
    except BaseException:
        _remove_local(partial)
        raise


def _remove_local(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _with_user(url: str, user: str) -> str:
    scheme, _, rest = url.partition("://")
    named = user and scheme in ("hdfs", "webhdfs", "viewfs") and "@" not in rest
    return f"{scheme}://{user}@{rest}" if named else url


def _tried(action: Callable[[], Any], name: str, times: int = 1) -> bool:
    for turn in range(times):
        try:
            action()
            return True
        except OSError as error:
            if turn + 1 == times:
                return _failed(f"{name}: {error}")
            time.sleep(2**turn * 0.1)
    return False


def _failed(reason: str) -> bool:
    warnings.warn(f"HDFSClient: {reason}", stacklevel=3)
    return False


def _age(info: Mapping[str, Any]) -> float:
    """When a file was changed, in seconds, under the names that file systems have for it; 0 where none is known."""
    for key in ("mtime", "modificationTime", "LastModified", "last_modified", "modified", "created"):
        if (value := info.get(key)) is not None:
            return value.timestamp() if hasattr(value, "timestamp") else float(value)
    return 0.0
