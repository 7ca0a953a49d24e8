"""Inference with few bits: weights are stored as integers, and results are scaled back once.

A rounding program multiplies values that were scaled back; a frozen one multiplies the integers themselves and scales
the product. The weights are the caller's: `weights_of` names them, whoever holds them makes them integers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from refluid.ir import Block, Operator, Program, VarType, unique_name
from refluid.transpiler.quantization.fake_ops import DEQUANTISED, QUANTISED, SCALE, Scheme, outputs_of

_QUANTISES = (
    "fake_quantize_abs_max",
    "fake_quantize_range_abs_max",
    "fake_quantize_moving_average_abs_max",
    "fake_channel_wise_quantize_abs_max",
)
_SCALES_BACK = ("fake_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs")


class Weight(NamedTuple):
    """A weight to be stored as integers."""

    name: str
    scale: str  # the variable of its scale
    by_channel: bool


def weights_of(program: Program) -> list[Weight]:
    """The weights that a rounding program quantises."""
    block = program.global_block()
    found = [(op, op.input("X")[0]) for op in block.ops if op.type in _QUANTISES]
    return [
        Weight(name, op.output("OutScale")[0], op.type == "fake_channel_wise_quantize_abs_max")
        for op, name in found
        if block.var(name).persistable
    ]


@dataclass(frozen=True)
class Freeze:
    """Multiplies integers, and scales their products back.

    Attributes:
      scales: of weights, by name: a number, or one for each channel.
      types: the operators whose weights are integers.
      weights, activations: how many bits they have.
    """

    scales: Mapping[str, Any]
    types: Collection[str]
    weights: Scheme
    activations: Scheme

    def apply(self, program: Program) -> tuple[Program, dict[str, list[float]]]:
        """A frozen copy of ``program``, and the scales per channel that it reads from the scope, by variable."""
        program = program.clone()
        block = program.global_block()
        _remove_rounding(block, self.scales)
        channel_scales: dict[str, list[float]] = {}
        instead: dict[str, str] = {}
        for op in list(block.ops):
            for old, new in instead.items():
                op.rename_input(old, new)
            weight = next((name for name in op.input_arg_names if name in self.scales), None)
            if op.type in self.types and weight is not None:
                (output,) = outputs_of(op)
                instead[output] = self._scale_back(op, output, weight, channel_scales)
        remove_unused(block)
        return program, channel_scales

    def _scale_back(self, op: Operator, output: str, weight: str, channel_scales: dict[str, list[float]]) -> str:
        """Inserts an operator that scales a product back; returns the name of its result."""
        block, scale = op.block, self.scales[weight]
        product = block.var(output)
        result = block.create_var(
            name=output + DEQUANTISED, shape=product.shape, dtype=product.dtype, lod_level=product.lod_level
        )
        activation = next(name for name in op.input_arg_names if name != weight).removesuffix(QUANTISED)
        inputs: dict[str, Any] = {"X": output}
        if isinstance(scale, list):
            name = unique_name.generate("channel_scale")
            block.create_var(name=name, shape=[len(scale)], dtype=product.dtype, persistable=True)
            channel_scales[name] = scale
            type, inputs["Scales"] = "fake_channel_wise_dequantize_max_abs", [name, activation + SCALE]
            attrs: dict[str, Any] = {"quant_bits": [self.weights.bits, self.activations.bits]}
        else:
            type, inputs["Scale"] = "fake_dequantize_max_abs", activation + SCALE
            attrs = {"max_range": self.weights.levels * self.activations.levels / scale}
        block.insert_op(op.idx + 1, type=type, inputs=inputs, outputs={"Out": result}, attrs={**attrs, "op_role": 0})
        return result.name


def _remove_rounding(block: Block, weights: Collection[str]) -> None:
    """Removes what rounds weights, and what scales them and activations back before they are multiplied."""
    removed: list[Operator] = []
    instead: dict[str, str] = {}
    for op in block.ops:
        if op.type in _QUANTISES and op.input("X")[0] in weights:
            removed.append(op)
        elif op.type in _SCALES_BACK:
            removed.append(op)
            (source,) = op.input("X")
            original = source.removesuffix(QUANTISED)
            instead[op.output("Out")[0]] = original if original in weights else source
    block.ops = [op for op in block.ops if op not in removed]
    for op in block.ops:
        for old, new in instead.items():
            op.rename_input(old, new)


@dataclass(frozen=True)
class StoreAsInt8:
    """Reads weights from variables of one byte per element, named ``<weight>.int8``."""

    types: Collection[str]

    def apply(self, program: Program) -> tuple[Program, dict[str, str]]:
        """A copy of ``program``, and the new names of its weights."""
        program = program.clone()
        block = program.global_block()
        names: dict[str, str] = {}
        for op in block.ops:
            if op.type not in self.types:
                continue
            for name in op.input_arg_names:
                variable = block.find_var_recursive(name)
                if variable is None or not variable.persistable:
                    continue
                names[name] = f"{name}.int8"
                block.create_var(name=names[name], shape=variable.shape, dtype=VarType.INT8, persistable=True)
                op.rename_input(name, names[name])
        remove_unused(block)
        return program, names


@dataclass(frozen=True)
class NameForMobile:
    """Calls the operators ``quantize`` and ``dequantize``, as Paddle's library for phones does."""

    def apply(self, program: Program) -> Program:
        """A copy of ``program`` for phones; this library does not run it."""
        program = program.clone()
        for op in program.global_block().ops:
            if op.type in _QUANTISES:
                op.type = "quantize"
            elif op.type in _SCALES_BACK:
                op.type = "dequantize"
        program.changed()
        return program


@dataclass(frozen=True)
class WriteOutputScales:
    """Writes the scale of what an operator writes into its attribute ``out_threshold``."""

    scales: Mapping[str, float]

    def apply(self, program: Program) -> Program:
        """A copy of ``program`` whose operators know their scales."""
        program = program.clone()
        for op in program.global_block().ops:
            if op.type == "moving_average_abs_max_scale":
                continue
            found = [self.scales[name] for name in op.output_arg_names if name in self.scales]
            if found:
                op.set_attr("out_threshold", found[-1])
        return program


def remove_unused(block: Block) -> None:
    """Removes the variables that no operator mentions."""
    ops = (op for outer in block.program.blocks for op in outer.ops)
    used = {name for op in ops for name in [*op.input_arg_names, *op.output_arg_names]}
    for name in [name for name in block.vars if name not in used]:
        block.remove_var(name)
