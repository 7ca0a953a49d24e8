"""Names that a sub-block shares with the blocks around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from refluid.ir.block import Block
from refluid.ir.overwritten import named_inputs


def outer_reads(block: Block, local: Iterable[str] = (), implied: bool = True) -> list[str]:
    """Returns the names the block's ops read from enclosing blocks, in order.

    Args:
      local: names that are defined for the block.
      implied: include reads that Fluid leaves implicit, namely variables an op overwrites.
    """
    written, reads = set(local), {}
    for op in block.ops:
        inputs = op.inputs if implied else named_inputs(op)
        # A variable declared in the block is local even if read first, e.g. an inner loop's array that is still empty.
        names = (n for names in inputs.values() for n in names if n not in written and n not in block.vars)
        reads.update(dict.fromkeys(names))
        written.update(op.output_arg_names)
    return list(reads)


def outer_writes(block: Block) -> list[str]:
    """Returns the names of enclosing blocks that the block's ops write, in order."""
    assert block.parent is not None
    written = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    return [name for name in written if name not in block.vars and block.parent._has_var_recursive(name)]


def crossing_names(block: Block, local: Sequence[str] = ()) -> tuple[list[str], list[str], list[str]]:
    """Returns the names the op of a block reads, those of them that Fluid leaves implicit, and the names it writes.

    Overwritten variables are read too: the op is a function of its inputs, which is how they get gradients.
    """
    assert block.parent is not None
    written, read = outer_writes(block), outer_reads(block, local)
    read += [name for name in written if block.parent.may_hold(name) and name not in (*read, *local)]
    named = outer_reads(block, local, implied=False)
    return read, [name for name in read if name not in named], written
