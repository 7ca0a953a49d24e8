"""Memory estimates for programs."""

import math

from paddle.fluid.framework import Program
from refluid.ir.vartype import as_numpy

__all__ = ["memory_usage"]


def memory_usage(program, batch_size):
    """Estimates the memory written by a program in one step: low, high, and the unit (B, KB or MB).

    Like Fluid's estimate, it ignores reuse; XLA needs less, because it frees and reuses memory within a step.
    """
    if not isinstance(program, Program):
        raise TypeError(f"memory_usage expects a Program, not {type(program).__name__}")
    if batch_size <= 0:
        raise ValueError(f"batch_size must be positive, got {batch_size}")
    block = program.global_block()
    written = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    variables = [block.vars[name] for name in written if name in block.vars]
    total = sum(_bytes(variable, batch_size) for variable in variables)
    for unit in ("B", "KB", "MB"):
        if total <= 1024 or unit == "MB":
            return total * 1.05, total * 1.1, unit
        total /= 1024


def _bytes(variable, batch_size):
    unknown = sum(dim < 0 for dim in variable.shape)
    if unknown > 1:
        raise ValueError(f"{variable.name} has {unknown} unknown dims: {list(variable.shape)}")
    if variable.type.name != "LOD_TENSOR":
        return 0
    return math.prod(batch_size if dim < 0 else dim for dim in variable.shape) * as_numpy(variable.dtype).itemsize
