"""Convolutions of 8-bit integers, as MKL-DNN computes them: real Fluid with MKL-DNN runs such programs too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from refluid.ir import Operator, Program, VarType
from refluid.transpiler.quantization.fake_ops import QUANTISED

_TYPES = ("conv2d", "depthwise_conv2d")


@dataclass(frozen=True)
class Range:
    """How large values are, and whether some are negative."""

    largest: float
    is_negative: bool

    @property
    def scale(self) -> float:
        """What the values are multiplied by before they are rounded."""
        return (127 if self.is_negative else 255) / (self.largest or 1.0)


def convolutions(program: Program) -> list[Operator]:
    """The convolutions of a program whose filters are parameters."""
    block = program.global_block()
    return [op for op in block.ops if op.type in _TYPES and block.var(op.input("Filter")[0]).persistable]


@dataclass(frozen=True)
class ConvolveIntegers:
    """Rounds the inputs of convolutions to 8 bits; the results are floating point.

    Attributes:
      ranges: of inputs, by name. Convolutions of other inputs stay as they are.
      filters: the scale of each output channel of a filter, by name.
    """

    ranges: Mapping[str, Range]
    filters: Mapping[str, Sequence[float]]

    def apply(self, program: Program) -> Program:
        """A copy of ``program`` that multiplies integers."""
        program = program.clone()
        rounded: dict[str, str] = {}
        for op in convolutions(program):
            (name,), (weight,) = op.input("Input"), op.input("Filter")
            if name not in self.ranges:
                continue
            if name not in rounded:
                rounded[name] = self._round(op, name)
            op.rename_input(name, rounded[name])
            op.type = "conv2d"  # MKL-DNN has no operator of its own for groups of one channel
            op.set_attr("Scale_in", self.ranges[name].scale)
            op.set_attr("Scale_weights", [float(scale) for scale in self.filters[weight]])
            op.set_attr("force_fp32_output", True)
            op.set_attr("use_mkldnn", True)
        program.changed()
        return program

    def _round(self, op: Operator, name: str) -> str:
        """Inserts an operator that rounds a variable before ``op`` reads it; returns the name of the integers."""
        block, found = op.block, self.ranges[name]
        variable = block.var(name)
        dtype = VarType.INT8 if found.is_negative else VarType.UINT8
        integers = block.create_var(name=name + QUANTISED, shape=variable.shape, dtype=dtype)
        attrs = {"Scale": found.scale, "is_negative_input": found.is_negative, "use_mkldnn": True, "op_role": 0}
        block.insert_op(op.idx, type="quantize", inputs={"Input": name}, outputs={"Output": integers}, attrs=attrs)
        return integers.name
