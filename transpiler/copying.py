"""Copies operators into another program, with renamed variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from refluid.ir import Block, Operator

Rename = Callable[[str], Sequence[str]]  # the new names of a variable: one, several for slices, or none


def copy_operator(op: Operator, block: Block, rename: Rename) -> Operator:
    """Appends a copy of ``op`` to ``block``, with renamed variables; its sub-blocks are copied too."""
    copy = op.copy_to(block)
    _rename(copy, rename)
    block.ops.append(copy)
    _copy_blocks(copy, block, rename)
    block.program.changed()
    return copy


def _rename(op: Operator, rename: Rename) -> None:
    op.inputs = {slot: [new for name in names for new in rename(name)] for slot, names in op.inputs.items()}
    op.outputs = {slot: [new for name in names for new in rename(name)] for slot, names in op.outputs.items()}


def _copy_blocks(op: Operator, block: Block, rename: Rename) -> None:
    for name, value in op.attrs.items():
        if isinstance(value, Block):
            op.attrs[name] = _copy_block(value, block, rename)
        elif isinstance(value, list) and any(isinstance(item, Block) for item in value):
            op.attrs[name] = [_copy_block(item, block, rename) for item in value]


def _copy_block(source: Block, parent: Block, rename: Rename) -> Block:
    program = parent.program
    copy = program._create_block(parent_idx=parent.idx)
    program._rollback()
    inner = set(source.vars)

    def outer_only(name: str) -> Sequence[str]:
        return [name] if name in inner else rename(name)

    for variable in source.vars.values():
        variable.copy_to(copy)
    for op in source.ops:
        copy_operator(op, copy, outer_only)
    return copy
