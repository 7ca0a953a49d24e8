"""Tables with ``is_distributed=True``, and what looks rows up in them."""

from __future__ import annotations

from refluid.ir import Operator, Program, Variable

__all__ = [
    "find_distributed_lookup_table",
    "find_distributed_lookup_table_inputs",
    "find_distributed_lookup_table_outputs",
]

_LOOKUPS = ("lookup_table", "lookup_table_v2")


def find_distributed_lookup_table(program: Program) -> str | None:
    """Returns the name of the program's table with ``is_distributed=True``, the first if there are several, or None."""
    found = (op for op in program.global_block().ops if op.type in _LOOKUPS and op.attrs.get("is_distributed"))
    return next((op.input("W")[0] for op in found), None)


def find_distributed_lookup_table_inputs(program: Program, table_name: str) -> list[Variable]:
    """Returns the ids that are looked up in a table."""
    return [program.global_block().var(name) for op in _lookups(program, table_name) for name in op.input("Ids")]


def find_distributed_lookup_table_outputs(program: Program, table_name: str) -> list[Variable]:
    """Returns the rows that are found in a table."""
    return [program.global_block().var(name) for op in _lookups(program, table_name) for name in op.output("Out")]


def _lookups(program: Program, table_name: str) -> list[Operator]:
    return [op for op in program.global_block().ops if op.type in _LOOKUPS and op.input("W") == [table_name]]
