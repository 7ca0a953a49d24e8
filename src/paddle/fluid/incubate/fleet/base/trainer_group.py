"""The workers of a Fleet job as a group that exchanges data: how they learn of each other's addresses.

In order: TRAINER_ENDPOINTS of the environment, if it is set; MPI; the parameter servers, which all workers know; the
group that the workers of a collective job have joined, which listens at their endpoints; these endpoints otherwise.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paddle.fluid.incubate.fleet.base.mpi_role_maker import MPIRoleMaker
from refluid.datasets.records import Records
from refluid.datasets.schema import Schema

# Addresses at which trainers listen for each other, in their order, where they cannot find out by themselves.
TRAINER_ENDPOINTS = "REFLUID_TRAINER_ENDPOINTS"

# By the addresses of all workers and the number of this one, or by the fleet whose workers tell each other.
_groups: dict[Any, Any] = {}


def group_of(fleet: Any) -> Any:
    """The group of a job's workers, opened on first use by all of them; None if there is only one, or no fleet."""
    if fleet is None or fleet.worker_num() == 1:
        return None
    fixed = _addresses(fleet, fleet.worker_num())
    key = (fleet.worker_index(), *fixed) if fixed else fleet
    found = _groups.get(key)
    if found is None or found.is_closed:
        found = _groups[key] = _open(fleet, fixed)
    return found


def sum_over_workers(fleet: Any, what: str, number: int) -> int:
    """The sum of all workers' numbers; all must call it."""
    group = group_of(fleet)
    return number if group is None else sum(int(text) for text in group.gather(what, str(number)))


def exchange(
    group: Any, blocks: Iterator[Records], schema: Schema, seed: int, batch_size: int, threads: int
) -> Records:
    """Sends every record to a random worker, ``batch_size`` at a time; returns those that this one was sent."""
    from refluid.runtime.trainer.shuffle import shuffle_records  # gRPC is loaded with it

    form = ", ".join(map(str, schema.slots))
    chunks = shuffle_records(group, blocks, form, seed=seed, chunk_records=batch_size, threads=threads)
    return Records.join(schema, [Records.of_bytes(schema, chunk.data, chunk.count) for chunk in chunks])


def _open(fleet: Any, fixed: list[str]) -> Any:
    from refluid.runtime.trainer.group import TrainerGroup  # gRPC is loaded with it

    worker, workers = fleet.worker_index(), fleet.worker_num()
    if fixed:
        return TrainerGroup(worker, workers, fixed[worker], lambda address: fixed)
    if _is_collective(fleet):
        host = _host_towards(fleet.worker_endpoints()[worker - 1])
        return TrainerGroup(worker, workers, f"{host}:0", fleet._tell_others)
    host = _host_towards(fleet.server_endpoints()[0])
    group = TrainerGroup(worker, workers, f"{host}:0", _meeting(fleet, workers))
    fleet._session().on_leave(group.close)
    return group


def _is_collective(fleet: Any) -> bool:
    return hasattr(fleet, "_tell_others")


def _addresses(fleet: Any, workers: int) -> list[str]:
    """Addresses that are known beforehand; none if workers have to tell each other."""
    given = os.environ.get(TRAINER_ENDPOINTS, "")
    name, listed = TRAINER_ENDPOINTS, [each.strip() for each in given.split(",") if each.strip()]
    if not listed:
        if fleet.server_endpoints() or _is_collective(fleet):
            return []
        name, listed = "PADDLE_TRAINER_ENDPOINTS", list(fleet.worker_endpoints())
    if len(listed) != workers:
        raise ValueError(
            f"{name} has {len(listed)} addresses ({','.join(listed)}), but the job has {workers} workers; list the "
            f"address of each, in order, or set {TRAINER_ENDPOINTS}"
        )
    return listed


def _meeting(fleet: Any, workers: int) -> Callable[[str], Sequence[str]]:
    """How a worker tells its address to all others, and learns theirs."""
    if isinstance(fleet.role_maker, MPIRoleMaker):
        return fleet.role_maker.all_gather

    def meet(address: str) -> Sequence[str]:
        from refluid.runtime.trainer.group import COMING  # gRPC is loaded with it

        found = fleet._session().barrier(address, patience=COMING)
        gone = [worker for worker in range(workers) if worker not in found]
        if gone:
            raise RuntimeError(f"workers {gone} have left the job, so data cannot be shuffled across all {workers}")
        return [found[worker] for worker in range(workers)]

    return meet


def _host_towards(endpoint: str) -> str:
    """The address of this machine that the host of ``endpoint`` can reach."""
    host, _, port = endpoint.rpartition(":")
    family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing; the system chooses the interface
        found = probe.getsockname()[0]
    return f"[{found}]" if ":" in found else found
