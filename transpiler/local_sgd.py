"""Local SGD: every replica trains on its own, and from time to time all continue with the mean of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refluid.ir import Block, Operator, OpRole, Program
from refluid.transpiler.inserting import insert
from refluid.transpiler.intervals import every

SNAPSHOT = "@SNAPSHOT"  # the suffix of a parameter's value after the last average
_COUNTER = "@LOCAL_SGD_STEP@"


@dataclass(frozen=True)
class AverageParameters:
    """Replaces parameters by their mean over all replicas, in every ``steps``-th step.

    As in Fluid, the mean is the snapshot less the mean of what replicas have subtracted from it since. Optimizer state
    stays with each replica.

    Attributes:
      replicas: how many there are.
      rings: the number of Fluid's communicators, which take turns.
      steps: the number of steps between averages; Fluid has 1.
    """

    replicas: int
    rings: int = 1
    steps: int = 1

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"the number of steps between averages must be at least 1, not {self.steps}")

    def apply(self, main: Program, startup: Program) -> None:
        """Adds averages to ``main``, and snapshots of the initial parameters to ``startup``."""
        block = main.global_block()
        updates = [op for op in block.ops if is_update(op)]
        if not updates:
            raise ValueError("the program updates no parameter; call minimize before distributing it")
        self._add_snapshots(main, startup)
        names = [op.output("ParamOut")[0] for op in updates]
        if self.steps == 1:
            self._average_now(block, updates, names)
            return
        with every(self.steps, main, startup, _COUNTER) as inside:
            for name in names:
                self._append_difference(inside, len(inside.ops), name, 0)
            self._append_means(inside, names)

    def _add_snapshots(self, main: Program, startup: Program) -> None:
        begin = startup.global_block()
        for parameter in begin.all_parameters():
            name = parameter.name + SNAPSHOT
            for home in (begin, main.global_block()):
                home.create_var(name=name, shape=parameter.shape, dtype=parameter.dtype, persistable=True)
            insert(begin, len(begin.ops), "assign", parameter.name, name, OpRole.Forward)

    def _average_now(self, block: Block, updates: Sequence[Operator], names: Sequence[str]) -> None:
        for turn, op in enumerate(reversed(updates)):
            self._append_difference(block, block.ops.index(op) + 1, op.output("ParamOut")[0], turn)
        for ring in range(self.rings):
            insert(block, len(block.ops), "c_sync_comm_stream", names[0], names[0], OpRole.Optimize, ring_id=ring)
        self._append_means(block, names)

    def _append_difference(self, block: Block, place: int, name: str, turn: int) -> None:
        """From ``place`` on: what all replicas have subtracted since the snapshot, added up."""
        _subtract_from_snapshot(block, place, name)
        insert(block, place + 1, "c_sync_calc_stream", name, name, OpRole.Optimize)
        ring = {"ring_id": turn % self.rings, "use_calc_stream": False}
        insert(block, place + 2, "c_allreduce_sum", name, name, OpRole.Optimize, **ring)

    def _append_means(self, block: Block, names: Sequence[str]) -> None:
        for name in names:
            insert(block, len(block.ops), "scale", name, name, OpRole.Optimize, scale=1.0 / self.replicas)
            _subtract_from_snapshot(block, len(block.ops), name)
            insert(block, len(block.ops), "assign", name, name + SNAPSHOT, OpRole.Optimize)


def is_update(op: Operator) -> bool:
    """Whether an operator updates a parameter."""
    return bool(op.role & OpRole.Optimize and op.input("Param") and op.input("Grad") and op.output("ParamOut"))


def _subtract_from_snapshot(block: Block, place: int, name: str) -> None:
    block.insert_op(
        place,
        type="elementwise_sub",
        inputs={"X": name + SNAPSHOT, "Y": name},
        outputs={"Out": name},
        attrs={"axis": -1, "op_role": int(OpRole.Optimize)},
    )
