"""Fluid's HDFS client, implemented with fsspec: no ``hadoop`` command is needed.

It supports any file system that fsspec supports, selected by ``fs.default.name``: ``hdfs://name:port``,
``webhdfs://…``, ``s3://bucket``, ``file:///folder``.
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
    """Copies files between this machine and a remote file system. Failures emit a warning and return False.

    Args:
      hadoop_home: the Hadoop installation, searched for its native library.
      configs: ``fs.default.name`` is the URL of the file system, ``hadoop.job.ugi`` is "user,password".
    """

    def __init__(self, hadoop_home: str | None, configs: Mapping[str, str] | None):
        from fsspec.core import url_to_fs

        configs = dict(configs or {})
        url = configs.get("fs.default.name") or configs.get("fs.defaultFS")
        if not url:
            raise ValueError("HDFSClient: configs must set the file system: {'fs.default.name': 'hdfs://name:port'}")
        if hadoop_home and os.path.isdir(hadoop_home):
            os.environ.setdefault("HADOOP_HOME", hadoop_home)
        user = configs.get("hadoop.job.ugi", "").partition(",")[0]
        self._system, root = url_to_fs(_with_user(url, user))
        self._root = root.rstrip("/")

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Uploads a file, into ``hdfs_path`` if that is a directory; an upload appears complete or not at all."""
        if not os.path.exists(local_path):
            raise FileNotFoundError(f"HDFSClient.upload: {local_path} does not exist")
        if os.path.isdir(local_path):
            return _failed(f"upload expects a file, but {local_path} is a directory; use multi_upload for directories")
        target = self._at(hdfs_path)
        if target.is_dir():
            target = target / os.path.basename(local_path)
        if target.exists() and not overwrite:
            return _failed(f"upload: {target} exists, and overwrite is False")
        return _attempt(lambda: send_file(Path(local_path), target), "upload", retry_times)

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False) -> bool:
        """Downloads a file or directory into the local directory ``local_path``, where it appears once complete.

        With ``unzip``, a zip file is also extracted there.
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

        return _attempt(copy, "download")

    def is_exist(self, hdfs_path: str | None = None) -> bool:
        """Returns whether a file or directory exists."""
        return self._at(hdfs_path).exists()

    def is_dir(self, hdfs_path: str | None = None) -> bool:
        """Returns whether a directory exists."""
        return self._at(hdfs_path).is_dir()

    def delete(self, hdfs_path: str) -> bool:
        """Removes a file, or a directory with its contents; a missing path is not a failure."""
        return _attempt(self._at(hdfs_path).remove, "delete")

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Renames a file or directory."""
        source, target = self._at(hdfs_src_path), self._at(hdfs_dst_path)
        if not source.exists():
            return _failed(f"rename: {source} does not exist")
        if target.exists():
            if not overwrite:
                return _failed(f"rename: {target} exists, and overwrite is False")
            target.remove()
        return _attempt(lambda: self._system.mv(source.path, target.path, recursive=source.is_dir()), "rename")

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Creates a directory on this machine."""
        os.makedirs(local_path, exist_ok=True)

    def makedirs(self, hdfs_path: str) -> bool:
        """Creates a directory and its parents."""
        return _attempt(lambda: self._system.makedirs(self._at(hdfs_path).path, exist_ok=True), "makedirs")

    def ls(self, hdfs_path: str) -> list[str]:
        """Lists the paths in a directory; empty if it does not exist."""
        return sorted(self._display_path(path.path) for path in self._at(hdfs_path).iterdir())

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """Lists the paths in a directory recursively; ``sort`` orders them oldest first if times are known."""
        folder = self._at(hdfs_path)
        if not folder.exists():
            return []
        found = self._system.find(folder.path, withdirs=not only_file, detail=True)
        found.pop(folder.path, None)
        if sort:
            return [
                self._display_path(path)
                for path, info in sorted(found.items(), key=lambda item: (_modified_at(item[1]), item[0]))
            ]
        return [self._display_path(path) for path in found]

    def _at(self, path: str | None) -> RemotePath:
        if not path:
            raise ValueError("HDFSClient: hdfs_path must be a path")
        if "://" in path:
            path = str(self._system._strip_protocol(path)).removeprefix(self._root)
        return RemotePath(self._system, f"{self._root}/{path.strip('/')}")

    def _display_path(self, path: str) -> str:
        return "/" + path.removeprefix(self._root).lstrip("/")


def multi_download(
    client: HDFSClient, hdfs_path: str, local_path: str, trainer_id: int, trainers: int, multi_processes: int = 5
) -> list[str]:
    """Downloads a trainer's share of a directory, every ``trainers``-th file; returns the local paths.

    Args:
      multi_processes: the number of concurrent copies.
    """
    prefix = client._display_path(client._at(hdfs_path).path)
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
    """Uploads every file of a local directory to the same relative path in ``hdfs_path``.

    Args:
      multi_processes: the number of concurrent copies.
      sync: ignored; the call always returns when all files are uploaded.
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


def _attempt(action: Callable[[], Any], name: str, times: int = 1) -> bool:
    for attempt in range(times):
        try:
            action()
            return True
        except OSError as error:
            if attempt + 1 == times:
                return _failed(f"{name}: {error}")
            time.sleep(2**attempt * 0.1)
    return False


def _failed(reason: str) -> bool:
    warnings.warn(f"HDFSClient: {reason}", stacklevel=3)
    return False


def _modified_at(info: Mapping[str, Any]) -> float:
    """Returns the modification time in seconds, under whatever name the file system uses; 0 if unknown."""
    for key in ("mtime", "modificationTime", "LastModified", "last_modified", "modified", "created"):
        if (value := info.get(key)) is not None:
            return value.timestamp() if hasattr(value, "timestamp") else float(value)
    return 0.0
