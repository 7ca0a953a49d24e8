"""HDFS access for Fleet scripts: the client of `fluid.contrib` with Fleet's signatures."""

from __future__ import annotations

import os
from collections.abc import Sequence

from paddle.fluid.contrib.utils import hdfs_utils
from paddle.fluid.contrib.utils.hdfs_utils import at_once
from paddle.fluid.incubate.fleet.base.fleet_base import split_evenly

__all__ = ["HDFSClient"]


class HDFSClient(hdfs_utils.HDFSClient):
    """An HDFS client, or one for any fsspec file system, selected by ``configs["fs.default.name"]``."""

    def is_file(self, hdfs_path: str) -> bool:
        """Returns whether a file exists."""
        return self.is_exist(hdfs_path) and not self.is_dir(hdfs_path)

    def cat(self, hdfs_path: str) -> str:
        """Returns the contents of a file as text without the final newline; empty if it does not exist."""
        return self._at(hdfs_path).read_bytes().decode().rstrip("\n") if self.is_file(hdfs_path) else ""

    def lsr(self, hdfs_path: str, excludes: Sequence[str] = ()) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Lists all files below a directory, except names that contain one of ``excludes``."""
        files = sorted(super().lsr(hdfs_path, sort=False))
        return [path for path in files if not any(word in path for word in excludes)]

    def upload(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, hdfs_path: str, local_path: str, multi_processes: int = 5, overwrite: bool = False, retry_times: int = 5
    ) -> bool:
        """Uploads a local file, or all files of a directory, a few at a time."""
        if not os.path.isdir(local_path):
            return super().upload(hdfs_path, local_path, overwrite, retry_times)
        files = [os.path.join(folder, name) for folder, _, names in os.walk(local_path) for name in names]

        def send(file: str) -> bool:
            target = os.path.join(hdfs_path, os.path.relpath(file, local_path))
            self.makedirs(os.path.dirname(target))
            return hdfs_utils.HDFSClient.upload(self, target, file, overwrite, retry_times)

        return all(at_once(send, sorted(files), multi_processes))

    def upload_dir(self, dest_dir: str, local_dir: str, overwrite: bool = False) -> bool:
        """Uploads a local directory into a remote directory."""
        return self.upload(os.path.join(dest_dir, os.path.basename(local_dir.rstrip("/"))), local_dir, 1, overwrite)

    def download(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, hdfs_path: str, local_path: str, multi_processes: int = 5, overwrite: bool = False, retry_times: int = 5
    ) -> bool:
        """Downloads a file, or all files of a directory, into a local directory, a few at a time."""
        if not self.is_dir(hdfs_path):
            return super().download(hdfs_path, local_path, overwrite)
        prefix = self._display_path(self._at(hdfs_path).path)

        def fetch(path: str) -> bool:
            folder = os.path.join(local_path, os.path.dirname(os.path.relpath(path, prefix)))
            return hdfs_utils.HDFSClient.download(self, path, folder, overwrite)

        return all(at_once(fetch, self.lsr(hdfs_path), multi_processes))

    @staticmethod
    def split_files(files: Sequence[str], trainer_id: int, trainers: int) -> list[str]:
        """Returns one trainer's share of the files."""
        return split_evenly(files, trainer_id, trainers)
