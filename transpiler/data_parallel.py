"""Data parallelism: the replicas of a program average their gradients before the optimizer uses them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from refluid.ir import Block, Operator, OpRole, Program
from refluid.ir.roles import OP_ROLE_VAR
from refluid.transpiler.gradient_merge import merged_gradients
from refluid.transpiler.inserting import insert

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
        starts = [op for op in block.ops if op.type == "fill_constant" and self._is_start(block, op)]
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

    def _is_start(self, block: Block, op: Operator) -> bool:
        """Whether backward starts here, from the loss or, in mixed precision, from the scaled loss."""
        (name,) = op.output_arg_names
        if name == f"{self.loss}{_GRAD}":
            return True
        scaled = block.vars.get(name.removesuffix(_GRAD)) if op.role == OpRole.Backward | OpRole.Loss else None
        return scaled is not None and scaled.op is not None and self.loss in scaled.op.input_arg_names


def reduce_gradients(block: Block, rings: int | None = None) -> None:
    """Appends an all-reduce to the last operator that writes each parameter's gradient.

    Gradients that are merged over several steps meet when they are used, in the block of the updates.

    Args:
      rings: the number of communicators in Fluid, which take turns, and which have operators that wait for them; None
        for a program without these operators, which change nothing here.
    """
    wanted = gradients(block)
    last = {name: place for place, op in enumerate(block.ops) for name in op.output_arg_names if _is_backward(op)}
    merged = merged_gradients(block)
    for turn, name in enumerate(sorted(wanted, key=lambda name: -last[name])):
        ring = {} if rings is None else {"ring_id": turn % rings, "use_calc_stream": False}
        if name in merged:
            total, inside = merged[name]
            insert(inside, 0, "c_allreduce_sum", total, total, OpRole.Optimize, **ring)
            continue
        insert(block, last[name] + 1, "c_allreduce_sum", name, name, OpRole.Backward, **ring)
        if rings is not None:
            insert(block, last[name] + 1, "c_sync_calc_stream", name, name, OpRole.Backward)
    if rings is not None:
        _wait_for_rings(block, wanted[0], rings)


def _wait_for_rings(block: Block, gradient: str, rings: int) -> None:
    updates = (place for place, op in enumerate(block.ops) if op.role & OpRole.Optimize)
    place = next(updates, len(block.ops))
    for ring in range(rings):
        insert(block, place + ring, "c_sync_comm_stream", gradient, gradient, OpRole.Backward, ring_id=ring)


def scale_loss_gradient(block: Block, factor: float) -> None:
    """Inserts an operator that scales the gradient of the loss, where backward starts."""
    for place, op in reversed(list(enumerate(block.ops))):
        if op.role == OpRole.Backward | OpRole.Loss:
            (name,) = op.output_arg_names
            insert(block, place + 1, "scale", name, name, OpRole.Backward, scale=factor)


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


def use_statistics_of_all(program: Program) -> None:
    """Makes batch_norm use the statistics of all replicas' samples."""
    for op in (op for block in program.blocks for op in block.ops):
        if op.type in ("batch_norm", "batch_norm_grad"):
            op.type = f"sync_{op.type}"
    program.changed()
