"""Files in Hadoop, as scripts of Fluid 1.5 use them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from paddle.fluid.incubate.fleet.base.fleet_base import split_evenly
from refluid.files.hadoop import HadoopFiles, do_all, local_files

__all__ = ["HDFSClient", "multi_download", "multi_upload"]


class HDFSClient(HadoopFiles):
    """A file system of Hadoop.

    Args:
      hadoop_home: the folder of the installation, with ``bin/hadoop`` in it.
      configs: options for every command, such as ``{"fs.default.name": ..., "hadoop.job.ugi": "user,password"}``.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, str]) -> None:
        super().__init__(hadoop_home, configs)

    def is_exist(self, hdfs_path: str | None = None) -> bool:
        """Whether there is a file or folder of this name."""
        return hdfs_path is not None and super().is_exist(hdfs_path)

    def is_dir(self, hdfs_path: str | None = None) -> bool:
        """Whether it is a folder."""
        return hdfs_path is not None and super().is_dir(hdfs_path)

    def ls(self, hdfs_path: str) -> list[str]:
        """What a folder holds."""
        return [path for path, _ in self.entries(hdfs_path)]

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """All that is below a folder; by default only files. The order is always that of names."""
        return [path for path, is_dir in self.entries(hdfs_path, deep=True) if not (only_file and is_dir)]

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Copies a local file or folder to Hadoop."""
        return self.put(hdfs_path, local_path, overwrite, retry_times)

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False) -> bool:
        """Copies a file or folder from Hadoop."""
        if unzip:
            raise NotImplementedError("HDFSClient.download does not unzip; unpack what it has downloaded")
        return self.get(hdfs_path, local_path, overwrite)

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Makes a local folder, and those above it."""
        os.makedirs(local_path, exist_ok=True)


def multi_download(
    client: HDFSClient, hdfs_path: str, local_path: str, trainer_id: int, trainers: int, multi_processes: int = 5
) -> list[str]:
    """Downloads one trainer's share of a folder's files, a few at a time; where they are now."""
    mine = split_evenly(client.lsr(hdfs_path), trainer_id, trainers)
    targets = {file: os.path.join(local_path, os.path.relpath(file, hdfs_path)) for file in mine}

    def get(file: str) -> bool:
        client.make_local_dirs(os.path.dirname(targets[file]))
        return client.download(file, targets[file])

    if not do_all(get, mine, multi_processes):
        raise OSError(f"not all files of {hdfs_path} could be downloaded")
    return list(targets.values())


def multi_upload(
    client: HDFSClient,
    hdfs_path: str,
    local_path: str,
    multi_processes: int = 5,
    overwrite: bool = False,
    sync: bool = True,
) -> None:
    """Uploads all files of a folder, a few at a time; it always waits for them."""

    def put(file: str) -> bool:
        target = os.path.join(hdfs_path, os.path.relpath(file, local_path))
        return client.makedirs(os.path.dirname(target)) and client.upload(target, file, overwrite)

    if not do_all(put, local_files(local_path), multi_processes):
        raise OSError(f"not all files of {local_path} could be uploaded")
