"""Programs, blocks and variables as short HTML, for notebooks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.ir.variable import Variable
from refluid.ir.vartype import VarType

_MOST_ROWS = 60  # of a table; what follows is counted


def program_html(program: Program) -> str:
    """A line of counts, parameters and operators to unfold."""
    parameters = program.all_parameters()
    elements = sum(math.prod(parameter.shape) for parameter in parameters)
    ops = [op for block in program.blocks for op in block.ops]
    feeds = [variable.name for variable in program.list_vars() if variable.is_data]
    words = [
        f"<b>Program</b> of {_counted(len(ops), 'operator')}",
        f"{_counted(len(parameters), 'parameter')} ({elements:,} elements)",
        *([f"feeds {', '.join(map(_code, feeds))}"] if feeds else []),
    ]
    rows = [(_code(p.name), _kind(p), "" if p.trainable else "frozen") for p in parameters]
    kinds = Counter(op.type for op in ops).most_common(5)
    most = ", ".join(f"{count} {escape(type)}" for type, count in kinds)
    inner = [_folded("parameters", _table(rows))] if rows else []
    inner += [_folded(_title(block, most), block_html(block)) for block in program.blocks if block.ops]
    return f"<div>{', '.join(words)}{''.join(inner)}</div>"


def block_html(block: Block) -> str:
    """A table of operators: what they write, their type, what they read."""
    return _table([_operator(op) for op in block.ops])


def variable_html(variable: Variable) -> str:
    """Name, dtype and shape."""
    marks = [word for word in ("persistable", "stop_gradient", "is_data") if getattr(variable, word)]
    marks += [f"lod {variable.lod_level}"] if variable.lod_level else []
    return f"<span>{_code(variable.name)} {_kind(variable)} {escape(', '.join(marks))}</span>"


def _operator(op: Operator) -> tuple[str, str, str]:
    written, read = (", ".join(map(_code, names)) for names in (op.output_arg_names, op.input_arg_names))
    return written, f"<b>{escape(op.type)}</b>", read


def _title(block: Block, most: str) -> str:
    return f"operators: {most}" if block.idx == 0 else f"block {block.idx}, inside block {block.parent_idx}"


def _kind(variable: Variable) -> str:
    dtype = variable.dtype.name.lower() if variable.type == VarType.LOD_TENSOR else variable.type.name
    return escape(f"{dtype}{list(variable.shape)}")


def _table(rows: Sequence[Sequence[str]]) -> str:
    shown: Iterable[str] = (
        "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in row) + "</tr>"
        for row in rows[:_MOST_ROWS]
    )
    more = f"<p>and {len(rows) - _MOST_ROWS} more</p>" if len(rows) > _MOST_ROWS else ""
    return f"<table>{''.join(shown)}</table>{more}"


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{title}</summary>{inner}</details>"


def _code(name: str) -> str:
    return f"<code>{escape(name)}</code>"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
