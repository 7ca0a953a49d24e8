"""Data parallelism: the replicas of a program average their gradients before the optimizer uses them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from refluid.ir import Block, Operator, OpRole, Program
from refluid.ir.roles import OP_ROLE, OP_ROLE_VAR

_GRAD = "@GRAD"


class LossScale(IntEnum):
    """What the gradient of the loss starts from, on each replica."""

    AVERAGE = 0  # one divided by the number of replicas
    ONE = 1
    FED = 2  # what the user feeds


@dataclass(frozen=True)
class ReduceGradients:
    """Sums the gradients of all replicas, each scaled so that the sum is their average.

    Attributes:
      replicas: how many there are.
      loss: the name of the loss; None for a program without backward ops.
      scale: what the gradient of the loss starts from.
    """

    replicas: int
    loss: str | None = None
    scale: LossScale = LossScale.AVERAGE

    def apply(self, program: Program) -> Program:
        """A copy of ``program`` that sums its gradients."""
        program = program.clone()
        block = program.global_block()
        if self.loss is not None:
            self._scale_loss(block)
        reduce_gradients(block)
        return program

    def _scale_loss(self, block: Block) -> None:
        starts = [op for op in block.ops if op.type == "fill_constant" and self._is_start(op)]
        if not starts:
            marked = any(op.role & OpRole.Loss and op.role & OpRole.Backward for op in block.ops)
            if marked:
                raise ValueError(f"loss_name is {self.loss}, but the program's backward ops start from another loss")
            return
        (start,) = starts
        if self.scale is LossScale.FED:
            block.ops.remove(start)
        elif self.scale is LossScale.AVERAGE:
            start.attrs["value"] = float(start.attrs.get("value", 1.0)) / self.replicas
        block.program.changed()

    def _is_start(self, op: Operator) -> bool:
        return op.output_arg_names == [f"{self.loss}{_GRAD}"]


def reduce_gradients(block: Block) -> None:
    """Appends an all-reduce to the last operator that writes each parameter's gradient."""
    wanted = gradients(block)
    last = {name: place for place, op in enumerate(block.ops) for name in op.output_arg_names if _is_backward(op)}
    for name, place in sorted(((name, last[name]) for name in wanted), key=lambda each: -each[1]):
        role = {OP_ROLE: int(OpRole.Backward), OP_ROLE_VAR: []}
        block.insert_op(place + 1, "c_allreduce_sum", {"X": [name]}, {"Out": [name]}, role)


def gradients(block: Block) -> list[str]:
    """The gradients that backward ops compute for parameters, in the order of their roles."""
    found: dict[str, None] = {}
    for op in block.ops:
        if _is_backward(op):
            found.update(dict.fromkeys(op.attrs.get(OP_ROLE_VAR, [])[1::2]))
    written = {name for op in block.ops if _is_backward(op) for name in op.output_arg_names}
    return [name for name in found if name in written]


def _is_backward(op: Operator) -> bool:
    return bool(op.role & OpRole.Backward) and not op.role & OpRole.Optimize
