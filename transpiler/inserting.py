"""Insertion of operators with one input and one output."""

from __future__ import annotations

from typing import Any

from refluid.ir import Block, Operator, OpRole


def insert(block: Block, place: int, type: str, source: str, target: str, role: OpRole, **attrs: Any) -> Operator:
    """Inserts an operator from X to Out, before the one at ``place``."""
    return block.insert_op(
        place, type=type, inputs={"X": source}, outputs={"Out": target}, attrs={**attrs, "op_role": int(role)}
    )
