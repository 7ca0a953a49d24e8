"""The listen_and_serv operator of a server's program: what it receives, which blocks it runs, what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from refluid.ir import OP_ROLE, Block, OpRole, Program
from refluid.ir.slices import SLICES, Slice
from refluid.ir.table_options import TABLE_OPTIONS
from refluid.transpiler.placement import Placement


def new_block(program: Program) -> Block:
    """Makes a block for listen_and_serv to run."""
    block = program._create_block(parent_idx=0)
    program._rollback()
    return block


def append_listen(
    program: Program,
    placement: Placement,
    endpoint: str,
    *,
    pushed: Sequence[str],
    blocks: Sequence[Block],
    updates: Mapping[str, Block],
    rows_of: Mapping[str, str],
    slices: Iterable[Slice],
    schedule: Block | None = None,
    dc_asgd: bool = False,
) -> None:
    """Appends listen_and_serv, and declares the initial values that the server holds for trainers.

    Args:
      pushed: the variables that receive pushes.
      blocks: all blocks, in the order in which they run.
      updates: the block that applies each pushed variable.
      rows_of: the slice of each variable that is pushed as selected rows.
      slices: the slices that the server holds.
      schedule: the block that computes learning rates, one of ``blocks``.
      dc_asgd: whether gradients are corrected for delay.
    """
    options = [(part.name, placed.options) for placed in placement.params if placed.grows for part in placed.slices]
    kept = [kept for kept in placement.kept if endpoint in kept.endpoints]
    for each in kept:
        program.global_block().create_var(
            name=each.param, shape=each.slices[0].shape, dtype=each.dtype, persistable=True
        )
    program.global_block().append_op(
        type="listen_and_serv",
        inputs={"X": list(pushed)} if pushed else None,
        attrs={
            OP_ROLE: int(OpRole.RPC),
            "endpoint": endpoint,
            "endpoints": list(placement.endpoints),
            "pserver_id": placement.endpoints.index(endpoint),
            "Fanin": placement.trainers,
            "trainers": placement.trainers,
            "distributed_mode": int(placement.mode),
            "optimize_blocks": list(blocks),
            "lr_decay_block_id": -1 if schedule is None else schedule.idx,
            "grad_to_block_id": [f"{name}:{block.idx}" for name, block in updates.items()],
            "sparse_grad_to_param": [f"{pushed}:{name}" for pushed, name in rows_of.items()],
            "dc_asgd": dc_asgd,
            TABLE_OPTIONS: [f"{name}:{chosen}" for name, chosen in options],
            SLICES: [str(part) for part in (*slices, *(each.slices[0] for each in kept))],
        },
    )
