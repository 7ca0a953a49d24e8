"""What layers with bodies are made of: a guard that opens a block, and the names a block shares with the outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

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


def same_structure(first: Any, second: Any) -> bool:
    """Whether two nests of lists, tuples and dicts have their variables in the same places."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_structure(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(same_structure, first, second))
    return (isinstance(first, Variable) and isinstance(second, Variable)) or (first is None and second is None)


def map_structure(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Calls ``function`` on the variables at each place of equal nests; the result is such a nest."""
    if isinstance(first, dict):
        # In the order of the keys, as Fluid has it: it decides in which order variables are made.
        return {key: map_structure(function, first[key], *(other[key] for other in others)) for key in sorted(first)}
    if isinstance(first, list | tuple):
        mapped = [map_structure(function, *each) for each in zip(first, *others, strict=True)]
        if isinstance(first, list):
            return mapped
        return type(first)(*mapped) if hasattr(first, "_fields") else tuple(mapped)
    return function(first, *others)


def flatten(structure: Any) -> list[Any]:
    """The variables of a nest, in order."""
    found: list[Any] = []
    map_structure(found.append, structure)
    return found
