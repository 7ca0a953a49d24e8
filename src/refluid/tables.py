"""Tables for the command line, laid out by rich: plain text in pipes and files, as wide as its content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Columns without borders; those that hold numbers are aligned to the right."""
    cells = [list(row) for row in rows]
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, head in enumerate(heads):
        values = [row[column] for row in cells if row[column]]
        numeric = column > 0 and bool(values) and all(value[0].isdigit() for value in values)
        found.add_column(Text(head), justify="right" if numeric else "left", no_wrap=True)
    for row in cells:
        found.add_row(*map(Text, row))
    return found


def as_text(shown: RenderableType) -> str:
    """What is shown as plain text, without spaces at the ends of lines."""
    stream = StringIO()
    Console(file=stream, width=10_000, color_system=None, soft_wrap=True).print(shown)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
