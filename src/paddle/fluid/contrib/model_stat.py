"""The parameters and the arithmetic of a model, operator by operator."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from paddle.fluid.framework import Operator, Program

_ACTIVATIONS = ("sigmoid", "tanh", "relu", "leaky_relu", "prelu")


class Cost(NamedTuple):
    """What one operator takes: shapes without the batch, the size of its parameters, multiplications and additions."""

    type: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    parameters: int
    operations: int


def summary(main_prog: Program) -> None:
    """Prints the sizes of parameters and the number of operations for one sample.

    Convolutions, fully connected layers, batch_norm, pooling and activations are counted; others are left out.
    """
    costs = [cost for op in main_prog.global_block().ops if (cost := _cost(op)) is not None]
    rows = [("No.", "TYPE", "INPUT", "OUTPUT", "PARAMs", "FLOPs")]
    rows += [
        (str(i), c.type, str(c.input), str(c.output), str(c.parameters), str(c.operations)) for i, c in enumerate(costs)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    cells = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    parameters, operations = sum(c.parameters for c in costs), sum(c.operations for c in costs)
    print("\n".join([line, cells[0], line, *cells[1:], line]))
    print(f"Total PARAMs: {parameters}({parameters / 1e6:.4f}M)")
    print(f"Total FLOPs: {operations}({operations / 1e9:.2f}G)")


def _cost(op: Operator) -> Cost | None:
    block = op.block
    if op.type in ("conv2d", "depthwise_conv2d"):
        x, out, weight = (block.var(op.input("Input")[0]), block.var(op.output("Output")[0]), _var(op, "Filter"))
        size = math.prod(weight.shape)
        bias = bool(op.input("Bias"))
        return Cost(
            op.type,
            x.shape[1:],
            out.shape[1:],
            size + bias * weight.shape[0],
            2 * math.prod(out.shape[2:]) * (size + bias),
        )
    if op.type == "mul":
        x, out, weight = _var(op, "X"), block.var(op.output("Out")[0]), _var(op, "Y")
        rows, columns = weight.shape
        # Fluid counts a bias for each layer of this kind, and the multiplications only.
        return Cost(op.type, x.shape[1:], out.shape[1:], rows * columns + 1, rows * columns)
    if op.type == "pool2d":
        x, out = _var(op, "X"), block.var(op.output("Out")[0])
        window = math.prod(x.shape[2:]) if op.attrs.get("global_pooling") else math.prod(op.attrs["ksize"])
        return Cost(op.type, x.shape[1:], out.shape[1:], 0, math.prod(out.shape[1:]) * window)
    if op.type == "batch_norm":
        x = _var(op, "X")
        return Cost(op.type, x.shape[1:], x.shape[1:], 2 * x.shape[1], 2 * math.prod(x.shape[1:]))
    if op.type in _ACTIVATIONS:
        x = _var(op, "X")
        return Cost(op.type, x.shape[1:], x.shape[1:], int(op.type == "prelu"), 2 * math.prod(x.shape[1:]))
    return None


def _var(op: Operator, slot: str) -> Any:
    return op.block.var(op.input(slot)[0])
