"""Pruning of channels: what else has to go when some output channels of a parameter do.

A channel that a convolution no longer computes is missing wherever it was used: in the bias and the statistics behind
it, in the input channels of the next convolution, in what it is added to. `spread` follows the channels through the
program, forwards and backwards, until every operator fits again; `Removals` applies what it found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from refluid.ir import Block, Operator, OpRole, Program, Variable

_CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
# Operators whose output has the channels of their input.
_KEEP_CHANNELS = frozenset(
    "relu relu6 leaky_relu sigmoid tanh swish hard_swish hard_sigmoid prelu elu brelu dropout pool2d scale clip cast "
    "assign pad2d lrn bilinear_interp nearest_interp softmax moving_average_abs_max_scale "
    "fake_quantize_dequantize_moving_average_abs_max".split()
)
_MEET = ("elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div", "elementwise_max")
_STATISTICS = ("Scale", "Bias", "Mean", "Variance")


@dataclass
class Removals:
    """Slices to be removed from parameters: (name, axis) -> positions."""

    parameters: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def of(self, name: str) -> Iterator[tuple[int, list[int]]]:
        """Axis and positions for a parameter."""
        return ((axis, sorted(found)) for (each, axis), found in self.parameters.items() if each == name)

    def names(self) -> list[str]:
        """The parameters that lose something, in order."""
        return list(dict.fromkeys(name for name, _ in self.parameters))

    def cut(self, name: str, value: np.ndarray, *, lazy: bool = False, keep: int | None = None) -> np.ndarray:
        """The value of a parameter without what is removed; with zeros there if ``lazy``. Axis ``keep`` stays whole."""
        for axis, positions in self.of(name):
            if axis != keep:
                value = remove(value, positions, axis, lazy=lazy)
        return value

    def apply(self, program: Program) -> None:
        """Gives parameters, optimizer state and all results in ``program`` their new shapes."""
        block = program.global_block()
        followers = optimizer_state(block)
        for name in self.names():
            old = block.var(name).shape
            for each in (name, *followers.get(name, ())):
                variable = block.var(each)
                if variable.shape == old or each == name:
                    variable.shape = tuple(self._shape(name, old))
        for op in block.ops:
            if _is_depthwise(op.type.removesuffix("_grad"), op):
                op.set_attr("groups", block.var(op.input("Filter")[0]).shape[0])
            if not op.role & OpRole.Optimize and op.type not in ("feed", "fetch"):
                op.infer()
        program.changed()

    def _shape(self, name: str, shape: tuple[int, ...]) -> list[int]:
        new = list(shape)
        for axis, positions in self.of(name):
            new[axis] -= len(positions)
        return new


def remove(value: np.ndarray, positions: Iterable[int], axis: int, *, lazy: bool = False) -> np.ndarray:
    """``value`` without these slices along ``axis``; with zeros there if ``lazy``."""
    if not lazy:
        return np.delete(value, list(positions), axis)
    value = value.copy()
    value[(slice(None),) * axis + (list(positions),)] = 0
    return value


def optimizer_state(block: Block) -> Mapping[str, list[str]]:
    """The variables that optimizers keep for each parameter."""
    found: dict[str, list[str]] = {}
    for op in block.ops:
        if op.role & OpRole.Optimize and op.input("Param"):
            kept = [
                name for slot in op.inputs if slot not in ("Param", "Grad", "LearningRate") for name in op.input(slot)
            ]
            found.setdefault(op.input("Param")[0], []).extend(kept)
    return found


def spread(program: Program, parameter: str, channels: Iterable[int], removals: Removals | None = None) -> Removals:
    """What is removed from all parameters if ``parameter`` loses these output channels.

    Args:
      removals: what is removed already, to which this is added.
    """
    found = Removals() if removals is None else removals
    return _Spreading(program.global_block(), parameter, found).run(set(channels))


class _Spreading:
    def __init__(self, block: Block, parameter: str, removals: Removals):
        self._block, self._parameter, self._removals = block, parameter, removals
        self._ops = [op for op in block.ops if not op.role & (OpRole.Backward | OpRole.Optimize | OpRole.LRSched)]
        self._missing: dict[str, set[int]] = {}  # activation -> channels it no longer has
        self._waiting: list[str] = []

    def run(self, channels: set[int]) -> Removals:
        users = [
            op
            for op in self._ops
            if (op.type in _CONVOLUTIONS and self._parameter in op.input("Filter"))
            or (op.type == "mul" and self._parameter in op.input("Y"))
        ]
        if not users:
            raise ValueError(f"cannot prune {self._parameter}: no convolution or fc of the program uses it")
        for op in users:
            self._lose(op.output("Output" if op.type in _CONVOLUTIONS else "Out")[0], channels)
        while self._waiting:
            name = self._waiting.pop(0)
            for op in self._ops:
                if name in op.input_arg_names or name in op.output_arg_names:
                    self._visit(op, name)
        return self._removals

    def _visit(self, op: Operator, name: str) -> None:
        """Makes ``op`` fit: the activation ``name``, which it reads or writes, has lost channels."""
        if op.type in _CONVOLUTIONS:
            self._visit_convolution(op)
        elif op.type == "batch_norm":
            self._share([*op.input("X"), *op.output("Y")])
            for slot in _STATISTICS:
                self._cut(op.input(slot)[0], 0, self._missing[op.input("X")[0]])
        elif op.type in _MEET:
            self._visit_meeting(op)
        elif op.type == "sum":
            self._share([*op.input("X"), *op.output("Out")])
        elif op.type == "concat":
            self._visit_concat(op)
        elif op.type == "mul":
            self._visit_product(op, name)
        elif op.type in _KEEP_CHANNELS:
            self._share([*op.input("X"), *op.output("Out")])
        else:
            raise op.error(
                f"cannot follow the channels that {self._parameter} loses through this operator",
                hint=f"leave {self._parameter} out of pruned_params",
            )

    def _visit_convolution(self, op: Operator) -> None:
        (source,), (result,), (weight,) = op.input("Input"), op.output("Output"), op.input("Filter")
        if _is_depthwise(op.type, op):
            self._share([source, result])
            self._cut(weight, 0, self._missing[result])
        elif int(op.attr("groups")) > 1:
            raise op.error(
                f"cannot prune {self._parameter}: convolutions in groups need all their channels",
                hint=f"leave {self._parameter} out of pruned_params",
            )
        else:
            self._cut(weight, 1, self._missing.get(source, set()))
            self._cut(weight, 0, self._missing.get(result, set()))
        for bias in op.input("Bias"):
            self._cut(bias, 0, self._missing.get(result, set()))

    def _visit_meeting(self, op: Operator) -> None:
        """A bias loses what the activation loses; two activations lose the same."""
        (x,), (y,), (result,) = op.input("X"), op.input("Y"), op.output("Out")
        other = self._block.var(y)
        if other.persistable:
            self._share([x, result])
            if math.prod(other.shape) > 1:
                self._cut(y, 0, self._missing[x])
        elif len(other.shape) > 1 and other.shape[1] == self._block.var(x).shape[1]:
            self._share([x, y, result])
        else:
            self._share([x, result])

    def _visit_concat(self, op: Operator) -> None:
        (result,), sources = op.output("Out"), op.input("X")
        if int(op.attr("axis")) != 1:
            self._share([*sources, result])
            return
        start = 0
        for source in sources:
            width = self._block.var(source).shape[1]
            self._lose(result, {start + channel for channel in self._missing.get(source, ())})
            inside = {channel - start for channel in self._missing.get(result, ()) if start <= channel < start + width}
            self._lose(source, inside)
            start += width

    def _visit_product(self, op: Operator, name: str) -> None:
        (x,), (weight,), (result,) = op.input("X"), op.input("Y"), op.output("Out")
        if not self._block.var(weight).persistable:
            raise op.error(
                f"cannot prune {self._parameter}: a product of two activations needs all channels",
                hint=f"leave {self._parameter} out of pruned_params",
            )
        if name == x:
            inner = math.prod(self._block.var(x).shape[2:])
            rows = {channel * inner + i for channel in self._missing[x] for i in range(inner)}
            self._cut(weight, 0, rows)
        else:
            self._cut(weight, 1, self._missing[result])

    def _share(self, names: Iterable[str]) -> None:
        together = set().union(*(self._missing.get(name, set()) for name in names))
        for name in names:
            self._lose(name, together)

    def _lose(self, name: str, channels: set[int]) -> None:
        known = self._missing.setdefault(name, set())
        if not channels <= known:
            self._missing[name] = known | channels
            self._waiting.append(name)

    def _cut(self, name: str, axis: int, positions: set[int]) -> None:
        if positions:
            self._removals.parameters.setdefault((name, axis), set()).update(positions)


def _is_depthwise(type: str, op: Operator) -> bool:
    if type not in _CONVOLUTIONS:
        return False
    weight: Variable = op.block.var(op.input("Filter")[0])
    return int(op.attr("groups")) > 1 and weight.shape[1] == 1
