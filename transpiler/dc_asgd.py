"""Delay-compensated async SGD: corrects gradients for updates since their trainer read the parameter."""

from __future__ import annotations

from refluid.ir import Block
from refluid.ir.modes import TRAINER_ID
from refluid.transpiler.slice_copies import Held, SliceCopier


def compensate(copier: SliceCopier, held: Held, block: Block, trainers: int) -> None:
    """Appends g + g * g * (parameter now - parameter as that trainer read it)."""
    if held.placed.sparse:
        raise held.update.optimizer.error(
            f"enable_dc_asgd requires dense gradients; the gradient of {held.param} is sparse",
            hint="set is_sparse=False for its embedding, or disable dc_asgd",
        )
    param, grad, shape = held.slice.name, held.grad, held.slice.shape
    dtype = copier.source_dtype(held.param)
    copies = [f"{param}.trainer_{trainer}_bak" for trainer in range(trainers)]
    for name in copies:
        copier.declare(name, shape, dtype, persistable=True)
    copier.declare(TRAINER_ID, (1,), "int64")
    words = ("local_bak", "dc_moved", "dc_part", "dc_step")
    read, moved, part, step = (copier.declare(f"{param}.{word}", shape, dtype) for word in words)
    copier.append(block, "ref_by_trainer_id", {"X": copies, "TrainerId": TRAINER_ID}, read)
    copier.append(block, "elementwise_sub", {"X": param, "Y": read}, moved)
    copier.append(block, "elementwise_mul", {"X": moved, "Y": grad}, part)
    copier.append(block, "elementwise_mul", {"X": part, "Y": grad}, step)
    copier.append(block, "elementwise_add", {"X": grad, "Y": step}, grad)
