"""Endpoints and rank of this process, from the variables of whatever has started it.

Launchers of Fluid say it all (PADDLE_TRAINER_ENDPOINTS, PADDLE_TRAINER_ID). Slurm's srun and Open MPI's mpirun say who
a process is and, in part, where the others are; ports are derived from the numbers of processes on a node, so that all
of them come to the same list. Nothing is started or connected here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

FIRST_PORT = 6170  # of a node; PADDLE_PORT sets another


@dataclass(frozen=True)
class Membership:
    """The endpoints of all processes of a job, and which of them this one is."""

    endpoints: tuple[str, ...]
    rank: int

    @property
    def endpoint(self) -> str:
        """Where this process is."""
        return self.endpoints[self.rank]

    def variables(self) -> dict[str, str]:
        """The variables by which Fluid's launchers say the same."""
        return {
            "PADDLE_TRAINER_ID": str(self.rank),
            "PADDLE_TRAINERS_NUM": str(len(self.endpoints)),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(self.endpoints),
            "PADDLE_CURRENT_ENDPOINT": self.endpoint,
        }


def membership(variables: Mapping[str, str] | None = None) -> Membership | None:
    """The place of this process in its job; None if nothing says that there are several.

    Raises:
      ValueError: variables contradict each other, or one is missing.
    """
    variables = os.environ if variables is None else variables
    if variables.get("PADDLE_TRAINER_ENDPOINTS"):
        found = _from_paddle(variables)
    elif "SLURM_PROCID" in variables and int(variables.get("SLURM_NTASKS", "1")) > 1:
        found = _from_slurm(variables)
    elif "OMPI_COMM_WORLD_RANK" in variables and int(variables.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
        found = _from_open_mpi(variables)
    else:
        return None
    if not 0 <= found.rank < len(found.endpoints):
        raise ValueError(f"rank {found.rank} is not among the {len(found.endpoints)} endpoints {found.endpoints}")
    return found


def _from_paddle(variables: Mapping[str, str]) -> Membership:
    endpoints = tuple(part.strip() for part in variables["PADDLE_TRAINER_ENDPOINTS"].split(",") if part.strip())
    here, rank = variables.get("PADDLE_CURRENT_ENDPOINT"), variables.get("PADDLE_TRAINER_ID")
    if here is None and rank is None:
        raise ValueError("PADDLE_TRAINER_ENDPOINTS is set, but neither PADDLE_TRAINER_ID nor PADDLE_CURRENT_ENDPOINT")
    if here is not None and here not in endpoints:
        raise ValueError(f"PADDLE_CURRENT_ENDPOINT {here} is not among PADDLE_TRAINER_ENDPOINTS {','.join(endpoints)}")
    if rank is None:
        assert here is not None
        return Membership(endpoints, endpoints.index(here))
    if here is not None and endpoints.index(here) != int(rank):
        raise ValueError(
            f"PADDLE_TRAINER_ID is {rank}, but PADDLE_CURRENT_ENDPOINT {here} is number {endpoints.index(here)} of "
            f"PADDLE_TRAINER_ENDPOINTS"
        )
    return Membership(endpoints, int(rank))


def _from_slurm(variables: Mapping[str, str]) -> Membership:
    """Of srun: nodes in SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, tasks of each in SLURM_TASKS_PER_NODE.

    Tasks are numbered node by node, as srun does unless --distribution says otherwise.
    """
    if variables.get("SLURM_DISTRIBUTION", "block").split(":")[0].split(",")[0] not in ("block", "Block"):
        raise ValueError(
            f"SLURM_DISTRIBUTION={variables['SLURM_DISTRIBUTION']}: ranks are derived from --distribution=block only; "
            "set PADDLE_TRAINER_ENDPOINTS and PADDLE_TRAINER_ID in your script"
        )
    nodes = list(expand_hosts(_first(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")))
    counts = list(_tasks(_first(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")))
    if len(nodes) != len(counts) or sum(counts) != int(variables["SLURM_NTASKS"]):
        raise ValueError(
            f"Slurm's variables do not fit together: nodes {','.join(nodes)}, tasks of each {counts}, "
            f"SLURM_NTASKS {variables['SLURM_NTASKS']}"
        )
    return Membership(_endpoints(nodes, counts, variables), int(variables["SLURM_PROCID"]))


def _from_open_mpi(variables: Mapping[str, str]) -> Membership:
    """Of mpirun: numbers only. On several nodes, PADDLE_TRAINERS must name them."""
    size, here = int(variables["OMPI_COMM_WORLD_SIZE"]), int(variables["OMPI_COMM_WORLD_LOCAL_SIZE"])
    nodes = [name.strip() for name in variables.get("PADDLE_TRAINERS", "").split(",") if name.strip()]
    if not nodes and here == size:
        nodes = ["127.0.0.1"]
    if not nodes or size != here * len(nodes):
        raise ValueError(
            f"Open MPI started {size} processes, {here} of them on this node, and does not say where the others are: "
            f"name all nodes in PADDLE_TRAINERS (now {','.join(nodes) or 'unset'}), with as many processes on each"
        )
    return Membership(_endpoints(nodes, [here] * len(nodes), variables), int(variables["OMPI_COMM_WORLD_RANK"]))


def _endpoints(nodes: Sequence[str], counts: Sequence[int], variables: Mapping[str, str]) -> tuple[str, ...]:
    first = int(variables.get("PADDLE_PORT", FIRST_PORT))
    return tuple(f"{node}:{first + place}" for node, count in zip(nodes, counts, strict=True) for place in range(count))


def _first(variables: Mapping[str, str], *names: str) -> str:
    for name in names:
        if variables.get(name):
            return variables[name]
    raise ValueError(f"Slurm has not set {' or '.join(names)}; was the script started by srun?")


def _tasks(text: str) -> Iterator[int]:
    """The numbers in ``2(x3),1``: three nodes of two tasks, and one of one."""
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            raise ValueError(f"SLURM_TASKS_PER_NODE={text!r}: expected numbers, such as 2(x3),1")
        yield from [int(found[1])] * int(found[2] or 1)


def expand_hosts(text: str) -> Iterator[str]:
    """The names in Slurm's short form: ``node[1-2,07],login`` is node1, node2, node07, login."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        found = re.fullmatch(r"([^\[\]]*)\[([^\]]*)\](.*)", part)
        if found is None:
            yield part
            continue
        for tail in expand_hosts(found[3]) if found[3] else [""]:
            yield from (f"{found[1]}{number}{tail}" for number in _numbers(found[2], text))


def _numbers(text: str, whole: str) -> Iterator[str]:
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if found is None:
            raise ValueError(f"cannot read the list of nodes {whole!r}")
        last = found[2] or found[1]
        yield from (str(number).zfill(len(found[1])) for number in range(int(found[1]), int(last) + 1))
