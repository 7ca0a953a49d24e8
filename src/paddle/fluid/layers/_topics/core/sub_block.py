"""What layers with bodies are made of: a guard that opens a block, and the names a block shares with the outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from paddle.fluid.framework import default_main_program
from refluid.ir import Block, Program, Variable, VarType
from refluid.ir.overwritten import named_inputs

__all__: list[str] = []


@contextmanager
def open_block(program: Program | None = None) -> Iterator[Block]:
    """Layers inside append to a new block within the current one."""
    program = program or default_main_program()
    block = program._create_block()
    try:
        yield block
    finally:
        program._rollback()


def outer_reads(block: Block, local: Iterable[str] = (), implied: bool = True) -> list[str]:
    """The names the block's ops read from outside, in order.

    Args:
      local: names the block is given.
      implied: also those that real Fluid's form of an op does not name: what it overwrites.
    """
    written, reads = set(local), {}
    for op in block.ops:
        inputs = op.inputs if implied else named_inputs(op)
        # What the block declares is not outside, even if it is read first: an array of an inner loop, still empty.
        names = (n for names in inputs.values() for n in names if n not in written and n not in block.vars)
        reads.update(dict.fromkeys(names))
        written.update(op.output_arg_names)
    return list(reads)


def outer_writes(block: Block) -> list[str]:
    """The names of enclosing blocks that the block's ops write, in order."""
    assert block.parent is not None
    written = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    return [name for name in written if name not in block.vars and block.parent._has_var_recursive(name)]


def step_scopes(block: Block) -> Variable:
    """The variable in which real Fluid keeps the inner values of a run."""
    return block.create_var(type=VarType.STEP_SCOPES)
