"""Checkpoints of collective jobs: numbered directories with one file of all variables, and one with the epoch."""

from __future__ import annotations

import json
import os
from typing import Any

from paddle.distributed.fs_wrapper import FS, LocalFS
from paddle.fluid import io

_PREFIX = "__paddle_fleet_checkpoint__"
_PARAMETERS = "_paddle_fleet_param__"
_STATUS = "fleet_train_status"


class TrainStatus:
    """How far training has come: the number of the last complete epoch, -1 before the first."""

    def __init__(self, epoch_no: int = -1):
        self._epoch_no = epoch_no

    def next(self) -> int:
        """The epoch to continue with."""
        return self._epoch_no + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainStatus) and self._epoch_no == other._epoch_no

    def __hash__(self) -> int:
        return hash(self._epoch_no)


class Checkpoints:
    """The checkpoints in a directory.

    Args:
      root: the directory.
      fs: the file system it is on.
      cache: a local directory, for file systems that are not local.
    """

    def __init__(self, root: str, fs: FS | None, cache: str):
        self.root, self.fs, self.cache = root, fs or LocalFS(), cache

    def numbers(self) -> list[int]:
        """The numbers of the complete checkpoints, in order."""
        names = [name.partition(".") for name in self.fs.list_dirs(self.root)]
        return sorted(int(number) for prefix, _, number in names if prefix == _PREFIX and number.isdigit())

    def save(self, executor: Any, program: Any, status: TrainStatus) -> None:
        """Saves a new checkpoint, which appears once it is complete."""
        self.fs.mkdir(self.root)
        final = self._path(max(self.numbers(), default=-1) + 1)
        partial = final + ".tmp"
        self.fs.delete(partial)
        local = os.path.join(self.cache, os.path.basename(final)) if self.fs.need_upload_download() else partial
        LocalFS().delete(local)
        os.makedirs(local)
        io.save_persistables(executor, local, program, _PARAMETERS)
        with open(os.path.join(local, _STATUS), "w", encoding="utf-8") as file:
            json.dump({"epoch_no": status._epoch_no}, file)
        if local != partial:
            self.fs.upload(local, partial)
            LocalFS().delete(local)
        self.fs.mv(partial, final)

    def load(self, executor: Any, program: Any, owner: str) -> TrainStatus | None:
        """Loads the last checkpoint; None if there is none. ``owner`` keeps processes apart in the cache."""
        numbers = self.numbers()
        if not numbers:
            return None
        local = path = self._path(numbers[-1])
        if self.fs.need_upload_download():
            local = os.path.join(self.cache, owner, os.path.basename(path))
            LocalFS().delete(local)
            os.makedirs(os.path.dirname(local), exist_ok=True)
            self.fs.download(path, local)
        with open(os.path.join(local, _STATUS), encoding="utf-8") as file:
            epoch = json.load(file)["epoch_no"]
        io.load_persistables(executor, local, program, _PARAMETERS)
        return TrainStatus(epoch)

    def keep(self, count: int) -> None:
        """Removes all but the last ``count`` checkpoints."""
        numbers = self.numbers()
        for number in numbers[: max(0, len(numbers) - max(1, count))]:
            self.fs.delete(self._path(number))

    def _path(self, number: int) -> str:
        return os.path.join(self.root, f"{_PREFIX}.{number}")
