"""The size of a model: parameters and floating-point operations, counted as Fluid's slim does."""

from __future__ import annotations

import math

from refluid.ir import Operator, Parameter, Program


def count_parameters(program: Program) -> int:
    """The number of elements of all parameters."""
    return sum(math.prod(variable.shape) for variable in program.list_vars() if isinstance(variable, Parameter))


def count_operations(program: Program, *, only_convolutions: bool = False) -> float:
    """Operations for one sample: of convolutions, and of products, pooling, relu, sigmoid and batch_norm."""
    return sum(_operations(op, only_convolutions) for op in program.global_block().ops)


def _operations(op: Operator, only_convolutions: bool) -> float:
    block = op.block
    if op.type in ("conv2d", "depthwise_conv2d"):
        outputs, channels, *kernel = block.var(op.input("Filter")[0]).shape
        area = math.prod(block.var(op.output("Output")[0]).shape[2:])
        # Fluid divides by the groups once more: the channels of a filter are those of one group already.
        return 2 * area * outputs * channels / int(op.attr("groups")) * math.prod(kernel)
    if only_convolutions:
        return 0
    if op.type == "mul":
        return 2 * block.var(op.input("X")[0]).shape[1] * block.var(op.output("Out")[0]).shape[-1]
    if op.type == "pool2d":
        return math.prod(block.var(op.output("Out")[0]).shape[1:]) * abs(math.prod(op.attr("ksize")))
    if op.type in ("relu", "sigmoid"):
        return math.prod(block.var(op.output("Out")[0]).shape[1:])
    if op.type == "batch_norm":
        return math.prod(block.var(op.output("Y")[0]).shape[1:])
    return 0
