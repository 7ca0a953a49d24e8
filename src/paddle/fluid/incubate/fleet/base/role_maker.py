"""Role makers determine a process's role in a job: server or worker, its index, and its peers.

The role comes from the script (`UserDefinedRoleMaker`), from environment variables set by a cluster or a launcher
(`PaddleCloudRoleMaker`), or from MPI (`MPISymetricRoleMaker`, in `mpi_role_maker`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.incubate.fleet.base.environment import place_in_collective, place_in_job
from paddle.fluid.incubate.fleet.base.mpi_role_maker import MPIRoleMaker, MPISymetricRoleMaker
from paddle.fluid.incubate.fleet.base.roles import Role, RoleMakerBase

__all__ = [
    "GeneralRoleMaker",
    "MPIRoleMaker",
    "MPISymetricRoleMaker",
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]


class UserDefinedRoleMaker(RoleMakerBase):
    """A role set by the script.

    Args:
        current_id: the index of this worker or server.
        role: ``Role.WORKER`` or ``Role.SERVER``.
        worker_num: the number of workers.
        server_endpoints: the server addresses, e.g. ``["127.0.0.1:6001", "127.0.0.1:6002"]``.
    """

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._server_endpoints = _checked_endpoints("server_endpoints", server_endpoints)
        if role not in (Role.WORKER, Role.SERVER):
            raise TypeError(f"role must be Role.WORKER or Role.SERVER, not {role!r}")
        if not isinstance(worker_num, int):
            raise TypeError(f"worker_num must be an int, not {worker_num!r}")
        if worker_num <= 0:
            raise ValueError(f"worker_num must be greater than 0, not {worker_num}")
        others = len(self._server_endpoints) if role == Role.SERVER else worker_num
        self._role, self._worker_num = role, worker_num
        self._current_id = _checked_id(current_id, others, "servers" if role == Role.SERVER else "workers")


class UserDefinedCollectiveRoleMaker(RoleMakerBase):
    """A worker in a job without servers, set by the script.

    Args:
        current_id: the index of this worker.
        worker_endpoints: the worker addresses.
    """

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__()
        self._worker_endpoints = _checked_endpoints("worker_endpoints", worker_endpoints)
        self._worker_num = len(self._worker_endpoints)
        self._role = Role.WORKER
        self._current_id = _checked_id(current_id, self._worker_num, "workers")


class PaddleCloudRoleMaker(RoleMakerBase):
    """A role from environment variables set by a cluster or a launcher.

    Args:
        is_collective: a job without servers, described by PADDLE_TRAINER_ENDPOINTS and PADDLE_TRAINER_ID.
    """

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__()
        self._is_collective = is_collective

    def generate_role(self) -> None:
        """Reads the variables; raises a ValueError that names a missing or invalid one."""
        if self._role_is_generated:
            return
        place = place_in_collective() if self._is_collective else place_in_job()
        self._role = Role.SERVER if place.is_server else Role.WORKER
        self._current_id, self._worker_num = place.index, place.workers
        self._server_endpoints, self._worker_endpoints = list(place.servers), list(place.trainers)
        self._role_is_generated = True


class GeneralRoleMaker(PaddleCloudRoleMaker):
    """A role from environment variables; the rendezvous paths and network interfaces it accepts are ignored."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self._kwargs = kwargs


def _checked_endpoints(name: str, endpoints: Any) -> list[str]:
    if not isinstance(endpoints, list | tuple) or not all(isinstance(endpoint, str) for endpoint in endpoints):
        raise TypeError(f"{name} must be a list of strings, e.g. ['127.0.0.1:6174'], not {endpoints!r}")
    if not endpoints:
        raise ValueError(f"{name} must not be empty")
    if len(set(endpoints)) != len(endpoints):
        raise ValueError(f"{name} must not contain duplicates: {', '.join(endpoints)}")
    return list(endpoints)


def _checked_id(current_id: Any, others: int, what: str) -> int:
    if not isinstance(current_id, int):
        raise TypeError(f"current_id must be an int, not {current_id!r}")
    if not 0 <= current_id < others:
        raise ValueError(f"current_id must be from 0 to {others - 1} in a job of {others} {what}, not {current_id}")
    return current_id
