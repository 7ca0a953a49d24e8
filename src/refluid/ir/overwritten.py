"""Programs of real Fluid, made functions of their inputs.

Real Fluid's control-flow ops and writes to arrays change variables in place without naming them as inputs. Ours read
what they overwrite through a slot, so that a plan knows what they need and gradients know where they come from. What
was added to a program is left out where it is written, so that real Fluid finds its own form of it.
"""

from __future__ import annotations

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.ir.vartype import VarType
from refluid.ops.core.registry import is_known, lookup


def connect_overwritten(program: Program) -> None:
    """Adds to each op that changes variables in place those that may have a value before."""
    for block in program.blocks:
        for op in block.ops:
            if op.type == "recurrent":
                kept = [name for name in persistable_writes(*op.sub_blocks()) if name in op.input("parameters")]
                op.outputs.update({"kept": kept} if kept else {})
            overwrites = lookup(op.type).overwrites if is_known(op.type) else None
            if overwrites is None:
                continue
            slot, written = overwrites
            inner = next(iter(op.sub_blocks()), None)
            read = op.input_arg_names
            kept = [
                name
                for name in op.output(written)
                if name not in read and (_is_array(block, name) or block.may_hold(name, before=inner))
            ]
            if kept:
                op.inputs[slot] = [*op.input(slot), *kept]
                op.implied = {slot: kept}


def persistable_writes(block: Block) -> list[str]:
    """The persistable variables that the ops of a sub-block write."""
    written = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    found = {name: block.find_var_recursive(name) for name in written}
    return [name for name, variable in found.items() if variable is not None and variable.persistable]


def named_outputs(op: Operator) -> dict[str, list[str]]:
    """An op's outputs by slot, as real Fluid would have written them."""
    return {slot: names for slot, names in op.outputs.items() if slot != "kept"}


def named_inputs(op: Operator) -> dict[str, list[str]]:
    """An op's inputs by slot, as real Fluid would have written them."""
    inputs = {slot: [n for n in names if n not in op.implied.get(slot, ())] for slot, names in op.inputs.items()}
    if op.type == "write_to_array":
        inputs.pop("Array", None)  # which only ours has
    return inputs


def _is_array(block: Block, name: str) -> bool:
    variable = block.find_var_recursive(name)
    return variable is not None and variable.type == VarType.LOD_TENSOR_ARRAY
