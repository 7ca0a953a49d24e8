"""Files in Hadoop, through the ``hadoop`` program of an installation: what a training script does with them."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1  # seconds before a command is tried again, doubled each time


class HadoopFiles:
    """A file system of Hadoop.

    Args:
      hadoop_home: the folder of the installation, with ``bin/hadoop`` in it; variables such as ``$HADOOP_HOME`` count.
      configs: options for every command, such as ``{"fs.default.name": ..., "hadoop.job.ugi": "user,password"}``.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, str] | None = None) -> None:
        self._program = os.path.join(os.path.expandvars(hadoop_home), "bin", "hadoop")
        self._options = [f"-D{name}={value}" for name, value in (configs or {}).items()]

    def command(self, *arguments: str, retry_times: int = 1) -> tuple[bool, str]:
        """Runs ``hadoop fs`` with the arguments, again if it fails; whether it went well, and what it wrote."""
        pause = _FIRST_PAUSE
        for left in reversed(range(max(1, retry_times))):
            try:
                done = subprocess.run(
                    [self._program, "fs", *self._options, *arguments], capture_output=True, text=True, check=False
                )
            except FileNotFoundError:
                raise FileNotFoundError(f"there is no program {self._program}; is hadoop_home right?") from None
            if done.returncode == 0 or not left:
                break
            time.sleep(pause)
            pause *= 2
        if done.returncode and arguments[0] != "-test":
            log.warning("hadoop fs %s: %s", " ".join(arguments), done.stderr.strip() or done.returncode)
        return done.returncode == 0, done.stdout

    def is_exist(self, hdfs_path: str) -> bool:
        """Whether there is a file or folder of this name."""
        return self.command("-test", "-e", hdfs_path)[0]

    def is_dir(self, hdfs_path: str) -> bool:
        """Whether it is a folder."""
        return self.command("-test", "-d", hdfs_path)[0]

    def is_file(self, hdfs_path: str) -> bool:
        """Whether it is a file."""
        return self.is_exist(hdfs_path) and not self.is_dir(hdfs_path)

    def entries(self, hdfs_path: str, *, deep: bool = False) -> list[tuple[str, bool]]:
        """What a folder holds, in the order of names: paths, and whether they are folders."""
        _, text = self.command("-lsr" if deep else "-ls", hdfs_path)
        lines = [line.split(None, 7) for line in text.splitlines()]
        return sorted((words[7], words[0].startswith("d")) for words in lines if len(words) == 8)

    def makedirs(self, hdfs_path: str) -> bool:
        """Makes a folder, and those above it."""
        return self.is_exist(hdfs_path) or self.command("-mkdir", "-p", hdfs_path)[0]

    def delete(self, hdfs_path: str) -> bool:
        """Removes a file, or a folder with all it holds; nothing to remove is fine."""
        return not self.is_exist(hdfs_path) or self.command("-rm", "-r", hdfs_path)[0]

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Gives a file or folder another name."""
        if not self._make_way(hdfs_dst_path, overwrite):
            return False
        return self.command("-mv", hdfs_src_path, hdfs_dst_path)[0]

    def cat(self, hdfs_path: str) -> str:
        """What a text file holds; nothing if there is none."""
        return self.command("-cat", hdfs_path)[1].rstrip("\n") if self.is_file(hdfs_path) else ""

    def put(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Copies a local file or folder to Hadoop."""
        if not os.path.exists(local_path):
            raise FileNotFoundError(f"there is no {local_path} to upload")
        if not self._make_way(hdfs_path, overwrite):
            return False
        return self.command("-put", local_path, hdfs_path, retry_times=retry_times)[0]

    def get(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Copies a file or folder from Hadoop."""
        if os.path.exists(local_path) and not overwrite:
            log.warning("%s is there already; overwrite=True replaces it", local_path)
            return False
        if os.path.isfile(local_path):
            os.remove(local_path)
        return self.command("-get", hdfs_path, local_path, retry_times=retry_times)[0]

    def _make_way(self, hdfs_path: str, overwrite: bool) -> bool:
        if not self.is_exist(hdfs_path):
            return True
        if not overwrite:
            log.warning("%s is there already; overwrite=True replaces it", hdfs_path)
            return False
        return self.delete(hdfs_path)


def local_files(folder: str) -> list[str]:
    """All files below a local folder, in the order of names."""
    return sorted(str(path) for path in Path(folder).rglob("*") if path.is_file())


def do_all(work: Callable[[str], bool], names: Sequence[str], at_a_time: int) -> bool:
    """Does ``work`` for every name, a few at a time; whether all went well."""
    with ThreadPoolExecutor(max(1, at_a_time)) as pool:
        return all(list(pool.map(work, names)))
