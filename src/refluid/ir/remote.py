"""Trainer programs whose tables live on servers, made independent of the servers again."""

from __future__ import annotations

from refluid.ir.operator import Operator
from refluid.ir.program import Program


def look_up_locally(program: Program) -> None:
    """Replaces lookups on servers by lookups in the table itself, whose value must then be in the scope."""
    for block in program.blocks:
        ops: list[Operator] = []
        for op in block.ops:
            if op.type != "distributed_lookup_table":
                ops.append(op)
                continue
            kind = "lookup_table_v2" if op.attrs.get("lookup_version", 1) == 2 else "lookup_table"
            attrs = {"padding_idx": op.attrs.get("padding_idx", -1), "is_sparse": True}
            for ids, rows in zip(op.input("Ids"), op.output("Outputs"), strict=True):
                inputs = {"Ids": [ids], "W": [op.attr("table_name")]}
                ops.append(Operator(block, kind, inputs, {"Out": [rows]}, attrs))
        block.ops = ops
    program.changed()
