"""Models with a table that was on servers: continuing to train them, and using them in one process."""

from __future__ import annotations

import os
import warnings
from typing import Any

from paddle.fluid import io
from refluid.ir import Program

__all__ = ["convert_dist_to_sparse_program", "load_persistables_for_increment", "load_persistables_for_inference"]


def convert_dist_to_sparse_program(program: Program) -> Program:
    """Makes lookups of a trainer's program, in tables that servers held, lookups of this process; returns the program.

    The tables become variables of the program, with sparse gradients, which `load_persistables_for_inference` reads.
    """
    if not _hold_tables(program):
        warnings.warn("the program has no distributed table; it is returned unchanged", stacklevel=2)
    return program


def _hold_tables(program: Program) -> bool:
    """Whether there was a table to hold."""
    block, found = program.global_block(), False
    for place, op in reversed(list(enumerate(block.ops))):
        if op.attrs.get("is_distributed"):
            op._set_attr("is_distributed", False)
            op._set_attr("is_sparse", True)
            found = True
        if op.type != "distributed_lookup_table":
            continue
        found = True
        pairs = list(zip(op.input("Ids"), op.output("Outputs"), strict=True))
        block._remove_op(place)
        for ids, out in reversed(pairs):
            version = "lookup_table_v2" if op.attrs["lookup_version"] == 2 else "lookup_table"
            block._insert_op(
                place,
                type=version,
                inputs={"Ids": [ids], "W": [op.attrs["table_name"]]},
                outputs={"Out": [out]},
                attrs={"is_sparse": True, "is_distributed": False, "padding_idx": op.attrs["padding_idx"]},
            )
    return found


def load_persistables_for_increment(
    dirname: str, executor: Any, program: Program, lookup_table_var: Any, lookup_table_var_path: str
) -> None:
    """Loads the state of a program from ``dirname``, and one table from a file of its own, to continue training."""
    table = _name_of(lookup_table_var)
    io.load_vars(executor, dirname, program, predicate=lambda variable: _is_state(variable) and variable.name != table)
    folder, file = os.path.split(lookup_table_var_path)
    io.load_vars(executor, folder or ".", program, vars=[program.global_block().var(table)], filename=file)


def load_persistables_for_inference(
    dirname: str, executor: Any, program: Program, lookup_table_var_name: str
) -> Program:
    """Loads the state of a program, with its table, from ``dirname``; returns the program, which holds its tables."""
    _hold_tables(program)
    if not program.global_block().has_var(lookup_table_var_name):
        raise ValueError(f"the program has no table {lookup_table_var_name}")
    io.load_vars(executor, dirname, program, predicate=_is_state)
    return program


def _name_of(variable: Any) -> str:
    return variable if isinstance(variable, str) else variable.name


def _is_state(variable: Any) -> bool:
    return io.is_persistable(variable)
