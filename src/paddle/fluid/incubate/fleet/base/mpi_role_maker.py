"""Roles assigned by MPI: ``mpirun -np 2N``, with a server and a worker on each node."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np

from paddle.fluid.incubate.fleet.base.roles import Role, RoleMakerBase

_PROCESSES_PER_NODE = 2


def _import_mpi() -> Any:
    try:
        from mpi4py import MPI  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "MPISymetricRoleMaker, the default of fleet.init(), requires mpi4py: "
            "pip install mpi4py, or pass UserDefinedRoleMaker(...) or PaddleCloudRoleMaker() to fleet.init"
        ) from error
    return MPI


class MPIRoleMaker(RoleMakerBase):
    """A role based on the MPI rank."""

    def __init__(self) -> None:
        super().__init__()
        self.MPI = _import_mpi()
        self._comm = self.MPI.COMM_WORLD
        self._node_type_comm: Any = None  # processes with the same role

    def _get_rank(self) -> int:
        return self._comm.Get_rank()

    def _get_size(self) -> int:
        return self._comm.Get_size()

    def _all_gather(self, obj: Any) -> list[Any]:
        return self._comm.allgather(obj)

    def _barrier_all(self) -> None:
        self._comm.barrier()

    def get_local_ip(self) -> str:
        """Returns the address of this node that other nodes can reach."""
        return socket.gethostbyname(socket.gethostname())

    def _finalize(self) -> None:
        self.MPI.Finalize()


class MPISymetricRoleMaker(MPIRoleMaker):
    """Assigns as many servers as workers: even ranks are servers, odd ranks are workers."""

    def generate_role(self) -> None:
        """Exchanges roles and addresses; every process of the job must call it."""
        if self._role_is_generated:
            return
        size, rank = self._get_size(), self._get_rank()
        if size % _PROCESSES_PER_NODE:
            raise ValueError(f"MPISymetricRoleMaker requires an even number of processes, but MPI started {size}")
        self._role = Role.SERVER if rank % _PROCESSES_PER_NODE == 0 else Role.WORKER
        self._current_id = rank // _PROCESSES_PER_NODE
        self._worker_num = size // _PROCESSES_PER_NODE
        host = self.get_local_ip()
        with socket.socket() as probe:
            probe.bind((host, 0))
            endpoint = f"{host}:{probe.getsockname()[1]}"
        everybody = self._all_gather(endpoint)
        self._server_endpoints, self._worker_endpoints = everybody[0::2], everybody[1::2]
        self._node_type_comm = self._comm.Split(self._role)
        self._role_is_generated = True

    def _server_num(self) -> int:
        return self.worker_num()

    def _role_comm(self) -> Any:
        self._ensure_generated()
        return self._node_type_comm

    def barrier_worker(self) -> None:
        """Waits for all workers; servers return immediately."""
        if self.is_worker():
            self._role_comm().barrier()

    def barrier_all(self) -> None:
        """Waits for all processes."""
        self._ensure_generated()
        self._barrier_all()

    def all_gather(self, input: Any) -> list[Any]:
        """Returns the inputs of all processes with the same role, in rank order."""
        return self._role_comm().allgather(input)

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Writes the sum (or max, min) of all workers' arrays to ``output``."""
        if not self.is_worker():
            return
        reduce = {"sum": np.sum, "max": np.max, "min": np.min}.get(mode)
        if reduce is None:
            raise ValueError(f"all_reduce_worker: mode must be sum, max or min, not {mode!r}")
        output[...] = reduce(np.stack(self.all_gather(np.asarray(input))), axis=0)
