"""Roles, and what every role maker can tell."""

from __future__ import annotations

from typing import Any

__all__ = ["Role", "RoleMakerBase"]


class Role:
    """What a process does."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """A place in a job. Subclasses find it in `generate_role`, which runs when it is first needed."""

    def __init__(self) -> None:
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._role_is_generated = False
        self._role: int | None = None
        self._current_id = -1
        self._worker_num = 0

    def generate_role(self) -> None:
        """Finds the place of this process."""
        self._role_is_generated = True

    def _generated(self) -> RoleMakerBase:
        if not self._role_is_generated:
            self.generate_role()
        return self

    def is_worker(self) -> bool:
        """Whether this process is a worker (a trainer)."""
        return self._generated()._role == Role.WORKER

    def is_server(self) -> bool:
        """Whether this process is a server."""
        return self._generated()._role == Role.SERVER

    def is_first_worker(self) -> bool:
        """Whether this process is the worker that does what only one may do."""
        return self.is_worker() and self._current_id == 0

    def worker_num(self) -> int:
        """How many workers the job has."""
        return self._generated()._worker_num

    def worker_index(self) -> int:
        """Which worker this is."""
        return self._generated()._current_id

    def server_index(self) -> int:
        """Which server this is."""
        return self._generated()._current_id

    def get_trainer_endpoints(self) -> list[str]:
        """The endpoints of the workers, where they are known."""
        return self._generated()._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        """The endpoints of the servers."""
        return self._generated()._server_endpoints

    def to_string(self) -> str:
        """The place in words."""
        self._generated()
        return (
            f"role: {self._role}, current_id: {self._current_id}, worker_endpoints: {self._worker_endpoints}, "
            f"server_endpoints: {self._server_endpoints}"
        )

    def barrier_worker(self) -> None:
        """Waits for all workers; those role makers can that have a line between workers, which MPI has."""
        raise self._without_line("barrier_worker")

    def barrier_all(self) -> None:
        """Waits for all processes."""
        raise self._without_line("barrier_all")

    def all_gather(self, input: Any) -> list[Any]:
        """What each worker passed, in the workers' order."""
        raise self._without_line("all_gather")

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Writes the sum (or max, min) of all workers' arrays into ``output``."""
        raise self._without_line("all_reduce_worker")

    def _without_line(self, name: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__}.{name}: this role maker knows the other workers but has no line to them; "
            "MPISymetricRoleMaker has one, and fleet.barrier_worker() waits at the parameter servers"
        )
