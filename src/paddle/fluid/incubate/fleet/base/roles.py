"""Roles, and the base class of role makers."""

from __future__ import annotations

from typing import Any

__all__ = ["Role", "RoleMakerBase"]


class Role:
    """The role of a process."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """A role in a job. Subclasses determine it in `generate_role`, which runs on first use."""

    def __init__(self) -> None:
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._role_is_generated = False
        self._role: int | None = None
        self._current_id = -1
        self._worker_num = 0

    def generate_role(self) -> None:
        """Determines the role of this process."""
        self._role_is_generated = True

    def _ensure_generated(self) -> RoleMakerBase:
        if not self._role_is_generated:
            self.generate_role()
        return self

    def is_worker(self) -> bool:
        """Returns whether this process is a worker (a trainer)."""
        return self._ensure_generated()._role == Role.WORKER

    def is_server(self) -> bool:
        """Returns whether this process is a server."""
        return self._ensure_generated()._role == Role.SERVER

    def is_first_worker(self) -> bool:
        """Returns whether this process is worker 0."""
        return self.is_worker() and self._current_id == 0

    def worker_num(self) -> int:
        """Returns the number of workers."""
        return self._ensure_generated()._worker_num

    def worker_index(self) -> int:
        """Returns the index of this worker."""
        return self._ensure_generated()._current_id

    def server_index(self) -> int:
        """Returns the index of this server."""
        return self._ensure_generated()._current_id

    def get_trainer_endpoints(self) -> list[str]:
        """Returns the addresses of the workers, if known."""
        return self._ensure_generated()._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        """Returns the addresses of the servers."""
        return self._ensure_generated()._server_endpoints

    def to_string(self) -> str:
        """Describes the role as text."""
        self._ensure_generated()
        return (
            f"role: {self._role}, current_id: {self._current_id}, worker_endpoints: {self._worker_endpoints}, "
            f"server_endpoints: {self._server_endpoints}"
        )

    def barrier_worker(self) -> None:
        """Waits for all workers; supported by role makers that connect workers, such as MPI's."""
        raise self._unsupported("barrier_worker")

    def barrier_all(self) -> None:
        """Waits for all processes."""
        raise self._unsupported("barrier_all")

    def all_gather(self, input: Any) -> list[Any]:
        """Returns the inputs of all workers, in order."""
        raise self._unsupported("all_gather")

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Writes the sum (or max, min) of all workers' arrays to ``output``."""
        raise self._unsupported("all_reduce_worker")

    def _unsupported(self, name: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__}.{name}: this role maker has no connection between workers; "
            "use MPISymetricRoleMaker, or fleet.barrier_worker(), which waits at the parameter servers"
        )
