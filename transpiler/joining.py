"""Startup programs of collective jobs: processes join, and begin with the parameters of the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refluid.ir import Block, OpRole, Program, VarType, unique_name
from refluid.transpiler.inserting import insert


@dataclass(frozen=True)
class Job:
    """The processes of a collective job, and which of them this is."""

    endpoints: tuple[str, ...]
    rank: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < len(self.endpoints):
            raise ValueError(
                f"this is process {self.rank}, but the job has {len(self.endpoints)} processes, numbered from 0: "
                f"{', '.join(self.endpoints)}"
            )

    def mark(self, *programs: Program) -> None:
        """Records the processes on programs that run in all of them."""
        for program in programs:
            program._trainers_endpoints, program._trainer_id = list(self.endpoints), self.rank
            program.changed()


def join_rings(startup: Program, job: Job, rings: int) -> None:
    """Appends operators that join the processes, once for each of Fluid's rings."""
    block = startup.global_block()
    others = [endpoint for i, endpoint in enumerate(job.endpoints) if i != job.rank]
    place = {"rank": job.rank, "endpoint": job.endpoints[job.rank], "other_endpoints": others}
    for ring in range(rings):
        name = _id_variable(block, unique_name.generate("nccl_id"))
        block.append_op(type="c_gen_nccl_id", outputs={"Out": name}, attrs=place)
        ring_of = {"nranks": len(job.endpoints), "rank": job.rank, "ring_id": ring}
        block.append_op(type="c_comm_init", inputs={"X": name}, attrs=ring_of)


def join_once(startup: Program, job: Job, names: Sequence[str], **attrs: int | bool) -> None:
    """Appends the operator that joins the processes in nccl2 mode; ``names`` are the variables of its ids."""
    block = startup.global_block()
    for name in names:
        _id_variable(block, name)
    place = {"trainers": list(job.endpoints), "trainer_id": job.rank}
    block.append_op(type="gen_nccl_id", outputs={"NCCLID": names[0]}, attrs={**place, **attrs})


def _id_variable(block: Block, name: str) -> str:
    return block.create_var(name=name, persistable=True, type=VarType.RAW).name


def broadcast_parameters(startup: Program, rings: int) -> None:
    """Appends operators that replace every process's parameters by those of the first."""
    block = startup.global_block()
    names = [parameter.name for parameter in block.all_parameters()]
    for i, name in enumerate(names):
        ring = {"ring_id": i % rings, "root": 0, "use_calc_stream": False}
        insert(block, len(block.ops), "c_broadcast", name, name, OpRole.Forward, **ring)
    for ring in range(rings if names else 0):
        insert(block, len(block.ops), "c_sync_comm_stream", names[-1], names[-1], OpRole.Forward, ring_id=ring)
