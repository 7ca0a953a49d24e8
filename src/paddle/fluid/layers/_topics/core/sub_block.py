"""Sub-blocks for layers with a body: opening one; `refluid.ir.sub_blocks` finds the names that it shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddle.fluid.framework import default_main_program
from refluid.ir import Block, Program, Variable, VarType


@contextmanager
def open_block(program: Program | None = None) -> Iterator[Block]:
    """Opens a new block inside the current one; layers in the context append to it."""
    program = program or default_main_program()
    block = program._create_block()
    try:
        yield block
    finally:
        program._rollback()


def parent_block() -> Block:
    """Returns the block that encloses the current one."""
    parent = default_main_program().current_block().parent
    assert parent is not None
    return parent


def step_scopes(block: Block) -> Variable:
    """Creates the variable in which Fluid keeps the intermediate values of a run."""
    return block.create_var(type=VarType.STEP_SCOPES)
