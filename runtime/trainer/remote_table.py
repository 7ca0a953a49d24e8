"""Tables that live on servers, as trainers read them: the whole table, or some of its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from refluid import flags
from refluid.errors import TableTooLargeError
from refluid.runtime.trainer.exchange_plan import SlicedVariable
from refluid.runtime.trainer.gather import gather, inventory
from refluid.runtime.trainer.row_requests import request_rows
from refluid.runtime.trainer.session import Session
from refluid.tensors import RemoteArray

LIMIT = "FLAGS_max_remote_read_gb"
GB = 1 << 30


class RemoteTable(RemoteArray):
    """A table on the servers of a job. A read includes every step that this trainer has taken before."""

    def __init__(self, session: Session, name: str, shape: Sequence[int], dtype: np.dtype):
        super().__init__(name, shape, dtype)
        self.session = session

    @cached_property
    def sliced(self) -> SlicedVariable:
        """The table and its slices on servers."""
        slices = sorted(inventory(self.session)[self.name], key=lambda part: part.start)
        return SlicedVariable(self.name, tuple(slices), self.dtype)

    @property
    def by_id(self) -> bool:
        self.check_present()
        return self.sliced.grows

    def read(self) -> np.ndarray:
        self.check_present()
        if self.sliced.grows:  # its shape is a hint
            return self.read_rows(range(len(self)))
        self._check_size(len(self))
        self.session.flush()
        return gather(self.session, [self.sliced.slices])[self.name]

    def read_rows(self, rows: np.ndarray | range) -> np.ndarray:
        self.check_present()
        self._check_size(len(rows))
        self.session.flush()
        return request_rows(self.session, {self.name: (self.sliced, np.asarray(rows, np.int64))})[self.name]

    def where(self) -> str:
        servers = self.session.job.endpoints
        return f"server{'s' if len(servers) > 1 else ''} {', '.join(servers)}"

    def check_writable(self, written: str) -> None:
        if self.session.has_left:
            return
        raise RuntimeError(
            f"table {self.name} lives on {self.where()}: {written} on a trainer does not reach them\n"
            "  hint        have the servers load it: fleet.init_server(folder), or after a server's startup program "
            "fluid.io.load_persistables(exe, folder, pserver_program); a copy for this trainer alone needs a scope "
            "of its own: fluid.scope_guard(fluid.core.Scope())"
        )

    def check_present(self) -> None:
        """Raises if this trainer has left the job."""
        if self.session.has_left:
            raise RuntimeError(
                f"table {self.name} lives on {self.where()}, and this trainer has left their job; "
                "read it, or save it, before exe.close()"
            )

    def _check_size(self, rows: int) -> None:
        size = rows * math.prod(self.shape[1:]) * self.dtype.itemsize
        limit = flags.read_flag(LIMIT)
        if size > limit * GB:
            held = [f"{part.endpoint} (rows {part.start} to {part.end})" for part in self.sliced.slices]
            raise TableTooLargeError(self.name, self.dtype.name, self.shape, rows, size, limit, held)
