"""File systems for checkpoints: the local one, and HDFS or any other that fsspec supports."""

from __future__ import annotations

import abc
import os
import shutil

__all__ = ["BDFS", "FS", "LocalFS"]


class FS(abc.ABC):
    """What checkpoints need of a file system."""

    @abc.abstractmethod
    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the directories in a directory."""

    @abc.abstractmethod
    def ls_dir(self, fs_path: str) -> list[str]:
        """The names of everything in a directory."""

    @abc.abstractmethod
    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copies a local directory here."""
        raise NotImplementedError(f"{type(self).__name__} holds local files, which are not uploaded")

    def download(self, fs_path: str, local_path: str) -> None:
        """Copies a directory from here to a local one."""
        raise NotImplementedError(f"{type(self).__name__} holds local files, which are not downloaded")

    @abc.abstractmethod
    def mkdir(self, fs_path: str) -> None:
        """Creates a directory, with those above it."""

    @abc.abstractmethod
    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Renames a file or directory."""

    @abc.abstractmethod
    def delete(self, fs_path: str) -> None:
        """Removes a file or directory, if it exists."""

    def rmr(self, fs_path: str) -> None:
        """Removes a directory."""
        self.delete(fs_path)

    def rm(self, fs_path: str) -> None:
        """Removes a file."""
        self.delete(fs_path)

    @abc.abstractmethod
    def need_upload_download(self) -> bool:
        """Whether files are written to a local directory first."""


class LocalFS(FS):
    """The files of this machine, or of a file system mounted here."""

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the directories in a directory; none if it does not exist."""
        return [name for name in self.ls_dir(fs_path) if os.path.isdir(os.path.join(fs_path, name))]

    def ls_dir(self, fs_path: str) -> list[str]:
        """The names of everything in a directory; none if it does not exist."""
        return sorted(os.listdir(fs_path)) if os.path.isdir(fs_path) else []

    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""
        return os.path.exists(fs_path)

    def mkdir(self, fs_path: str) -> None:
        """Creates a directory, with those above it."""
        os.makedirs(fs_path, exist_ok=True)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Renames a file or directory."""
        os.rename(fs_src_path, fs_dst_path)

    def delete(self, fs_path: str) -> None:
        """Removes a file or directory, if it exists."""
        if os.path.isdir(fs_path):
            shutil.rmtree(fs_path)
        elif os.path.exists(fs_path):
            os.remove(fs_path)

    def need_upload_download(self) -> bool:
        """False: files are written where they stay."""
        return False


class BDFS(FS):
    """HDFS, or any file system that fsspec supports.

    Args:
      hdfs_name: its URL, such as ``hdfs://name:port``.
      hdfs_ugi: "user,password".
      time_out: accepted and ignored, like ``sleep_inter``.
    """

    def __init__(self, hdfs_name: str, hdfs_ugi: str, time_out: int = 20 * 60 * 1000, sleep_inter: int = 1000):
        from paddle.fluid.incubate.fleet.utils.hdfs import HDFSClient

        self._client = HDFSClient(None, {"fs.default.name": hdfs_name, "hadoop.job.ugi": hdfs_ugi})

    def list_dirs(self, fs_path: str) -> list[str]:
        """The names of the directories in a directory; none if it does not exist."""
        return [name for name in self.ls_dir(fs_path) if self.is_dir(os.path.join(fs_path, name))]

    def ls_dir(self, fs_path: str) -> list[str]:
        """The names of everything in a directory; none if it does not exist."""
        found = self._client.ls(fs_path) if self.stat(fs_path) else []
        return sorted(os.path.basename(path.rstrip("/")) for path in found)

    def is_dir(self, fs_path: str) -> bool:
        """Whether a path is a directory."""
        return self._client.is_dir(fs_path)

    def stat(self, fs_path: str) -> bool:
        """Whether a path exists."""
        return self._client.is_exist(fs_path)

    def upload(self, local_path: str, fs_path: str) -> None:
        """Copies a local directory here."""
        if not self._client.upload(fs_path, local_path, overwrite=True):
            raise OSError(f"{local_path} could not be uploaded to {fs_path}")

    def download(self, fs_path: str, local_path: str) -> None:
        """Copies a directory from here into a local one."""
        if not self._client.download(fs_path, local_path, overwrite=True):
            raise OSError(f"{fs_path} could not be downloaded to {local_path}")

    def mkdir(self, fs_path: str) -> None:
        """Creates a directory, with those above it."""
        self._client.makedirs(fs_path)

    def mv(self, fs_src_path: str, fs_dst_path: str) -> None:
        """Renames a file or directory."""
        if not self._client.rename(fs_src_path, fs_dst_path):
            raise OSError(f"{fs_src_path} could not be renamed to {fs_dst_path}")

    def delete(self, fs_path: str) -> None:
        """Removes a file or directory, if it exists."""
        if self.stat(fs_path):
            self._client.delete(fs_path)

    def need_upload_download(self) -> bool:
        """True: files are written to a local directory first."""
        return True
