"""Mixed precision: casts around operators, so that some compute in 16 bits while parameters stay in 32."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from refluid.ir import Block, Operator, OpRole, Program, Variable, VarType

_Width = Literal["half", "full"]
SUFFIXES = {VarType.FP16: "fp16", VarType.BF16: "bf16", VarType.FP32: "fp32"}
# Inputs that stay in 32 bits whatever the width of the operator: statistics of normalization.
_KEPT = {"batch_norm": ("Scale", "Bias", "Mean", "Variance"), "sync_batch_norm": ("Scale", "Bias", "Mean", "Variance")}


@dataclass(frozen=True)
class InsertCasts:
    """Inserts casts into a forward program, by the type of each operator.

    Attributes:
      white: types that compute in 16 bits.
      black: types that compute in 32 bits. So do types in no list.
      gray: types that follow the operators that their inputs come from: 32 bits if one of these is black, 16 bits if
        one is white, else unchanged.
      black_variables: names of variables whose operators are black.
      half: the 16-bit dtype, FP16 or BF16.
    """

    white: Collection[str]
    black: Collection[str]
    gray: Collection[str]
    black_variables: Collection[str] = ()
    half: VarType = VarType.FP16

    def apply(self, program: Program) -> None:
        """Rewrites the global block of ``program``, which has no backward operators yet."""
        block = program.global_block()
        kept_full = {*self.black_variables, *_inside_blocks(block)}
        widths: dict[str, _Width] = {}
        for op in list(block.ops):
            width = self._width(op, widths, kept_full)
            if width is None or op.role & (OpRole.Optimize | OpRole.LRSched):
                continue
            self._cast_inputs(block, op, self.half if width == "half" else VarType.FP32)
            widths.update(dict.fromkeys(op.output_arg_names, width))
            if not op.sub_blocks():
                op.infer()
        program.changed()

    def _width(self, op: Operator, widths: dict[str, _Width], kept_full: set[str]) -> _Width | None:
        if op.type in ("feed", "fetch", "read") or not (op.input_arg_names or op.type in self.white):
            return None
        if not kept_full.isdisjoint([*op.input_arg_names, *op.output_arg_names]):
            return "full"
        if op.type in self.black or op.type not in {*self.white, *self.gray}:
            return "full"
        if op.type in self.white:
            return "half"
        before = {widths[name] for name in op.input_arg_names if name in widths}
        return "full" if "full" in before else "half" if before else None

    def _cast_inputs(self, block: Block, op: Operator, dtype: VarType) -> None:
        other = VarType.FP32 if dtype != VarType.FP32 else self.half
        place = block.ops.index(op)
        for slot in sorted(op.inputs):
            if slot in _KEPT.get(op.type, ()):
                continue
            for name in op.input(slot):
                source = block.find_var_recursive(name)
                if source is not None and source.dtype == other and source.type == VarType.LOD_TENSOR:
                    op.rename_input(name, _cast(block, place, source, dtype))


def _inside_blocks(block: Block) -> set[str]:
    """The names that operators with blocks of their own read: what is inside is not rewritten."""
    return {name for op in block.ops if op.sub_blocks() for inner in op.within() for name in inner.input_arg_names}


def _cast(block: Block, place: int, source: Variable, dtype: VarType) -> str:
    """The name of ``source`` in another dtype; the cast is inserted at its first use."""
    name = f"{source.name}.cast_{SUFFIXES[dtype]}"
    if name not in block.vars:
        block.create_var(
            name=name,
            shape=source.shape,
            dtype=dtype,
            lod_level=source.lod_level,
            stop_gradient=source.stop_gradient,
        )
        block.insert_op(
            place,
            type="cast",
            inputs={"X": source.name},
            outputs={"Out": name},
            attrs={"in_dtype": int(source.dtype), "out_dtype": int(dtype)},
        )
    return name
