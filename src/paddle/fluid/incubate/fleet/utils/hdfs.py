"""Files in Hadoop, as Fleet's scripts use them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from paddle.fluid.incubate.fleet.base.fleet_base import split_evenly
from refluid.files.hadoop import HadoopFiles, do_all, local_files

__all__ = ["HDFSClient"]


class HDFSClient(HadoopFiles):
    """A file system of Hadoop.

    Args:
      hadoop_home: the folder of the installation, with ``bin/hadoop`` in it.
      configs: options for every command, such as ``{"fs.default.name": ..., "hadoop.job.ugi": "user,password"}``.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, str]) -> None:
        super().__init__(hadoop_home, configs)

    def ls(self, hdfs_path: str) -> list[str]:
        """What a folder holds."""
        return [path for path, _ in self.entries(hdfs_path)]

    def lsr(self, hdfs_path: str, excludes: Sequence[str] = ()) -> list[str]:
        """All files below a folder, but those whose names contain one of ``excludes``."""
        files = [path for path, is_dir in self.entries(hdfs_path, deep=True) if not is_dir]
        return [path for path in files if not any(word in path for word in excludes)]

    def upload(
        self,
        hdfs_path: str,
        local_path: str,
        multi_processes: int = 5,
        overwrite: bool = False,
        retry_times: int = 5,
    ) -> bool:
        """Copies a local file, or all files of a folder, to Hadoop, a few at a time."""
        if os.path.isfile(local_path):
            return self.put(hdfs_path, local_path, overwrite, retry_times)

        def put(file: str) -> bool:
            target = os.path.join(hdfs_path, os.path.relpath(file, local_path))
            return self.makedirs(os.path.dirname(target)) and self.put(target, file, overwrite, retry_times)

        return do_all(put, local_files(local_path), multi_processes)

    def upload_dir(self, dest_dir: str, local_dir: str, overwrite: bool = False) -> bool:
        """Copies a local folder into a folder of Hadoop."""
        target = os.path.join(dest_dir, os.path.basename(local_dir.rstrip("/")))
        return self.makedirs(dest_dir) and self.put(target, local_dir, overwrite)

    def download(
        self,
        hdfs_path: str,
        local_path: str,
        multi_processes: int = 5,
        overwrite: bool = False,
        retry_times: int = 5,
    ) -> bool:
        """Copies a file, or all files of a folder, from Hadoop, a few at a time."""
        if not self.is_dir(hdfs_path):
            return self.get(hdfs_path, local_path, overwrite, retry_times)

        def get(file: str) -> bool:
            target = os.path.join(local_path, os.path.relpath(file, hdfs_path))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            return self.get(file, target, overwrite, retry_times)

        return do_all(get, self.lsr(hdfs_path), multi_processes)

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Makes a local folder, and those above it."""
        os.makedirs(local_path, exist_ok=True)

    @staticmethod
    def split_files(files: Sequence[str], trainer_id: int, trainers: int) -> list[str]:
        """One trainer's share of the files."""
        return split_evenly(files, trainer_id, trainers)
