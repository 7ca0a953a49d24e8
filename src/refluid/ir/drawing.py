"""Programs as pictures: graphs in Graphviz's text format, which needs nothing installed to be written."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from refluid.files.storage import AnyPath, at
from refluid.files.writing import atomic_write
from refluid.ir.block import Block
from refluid.ir.variable import Parameter

_OP = {"shape": "box", "style": "rounded,filled", "color": "#303a3a", "fontcolor": "#ffffff"}
_VARIABLE = {"shape": "box", "style": "rounded", "color": "#999999"}
_PARAMETER = {"shape": "box", "style": "filled", "color": "#148b97", "fontcolor": "#ffffff"}
_HIGHLIGHT = {"color": "#ffa500", "style": "filled", "fontcolor": "#000000"}


class Graph:
    """A directed graph with labelled nodes."""

    def __init__(self, name: str = "program", **attrs: str):
        self._name, self._attrs = name, attrs
        self._nodes: dict[str, dict[str, str]] = {}
        self._edges: list[tuple[str, str, dict[str, str]]] = []

    def node(self, key: str, label: str, **attrs: str) -> None:
        """Adds a node; a key that is known keeps its first label."""
        self._nodes.setdefault(key, {"label": label, **attrs})

    def edge(self, source: str, target: str, **attrs: str) -> None:
        """Adds an arrow between two nodes."""
        self._edges.append((source, target, attrs))

    @property
    def source(self) -> str:
        """The graph as text."""
        lines = [f"  {name}={_quoted(value)};" for name, value in self._attrs.items()]
        lines += [f"  {_quoted(key)}{_listed(attrs)};" for key, attrs in self._nodes.items()]
        lines += [f"  {_quoted(a)} -> {_quoted(b)}{_listed(attrs)};" for a, b, attrs in self._edges]
        return "\n".join([f"digraph {_quoted(self._name)} {{", *lines, "}", ""])

    def save(self, path: str) -> list[AnyPath]:
        """Writes the text, and where Graphviz is installed a picture beside it; returns the files written."""
        text, dot = at(path), shutil.which("dot")
        with atomic_write(text) as stream:
            stream.write(self.source.encode())
        if dot is None or not isinstance(text, Path):
            return [text]
        picture = text.with_suffix(".pdf")
        subprocess.run([dot, "-Tpdf", str(text), "-o", str(picture)], check=True)
        return [text, picture]


def draw_block(
    block: Block, graph: Graph, highlights: Iterable[str] = (), prefix: str = "", op_attrs: dict[str, str] | None = None
) -> None:
    """Adds a block's operators and variables to a graph.

    Args:
      highlights: regular expressions; variables whose names they match stand out.
      prefix: keeps the operators of several blocks in one graph apart.
    """
    patterns = [re.compile(pattern) for pattern in highlights]

    def variable(name: str) -> str:
        found = block.find_var_recursive(name)
        style = _PARAMETER if isinstance(found, Parameter) else _VARIABLE
        if any(pattern.match(name) for pattern in patterns):
            style = style | _HIGHLIGHT
        label = name if found is None else f"{name}\n{found.dtype.name.lower()}{list(found.shape)}"
        graph.node(f"var {name}", label, **style)
        return f"var {name}"

    for index, op in enumerate(block.ops):
        key = f"op {prefix}{index}"
        graph.node(key, op.type, **(op_attrs or _OP))
        for slot, names in op.inputs.items():
            for name in names:
                graph.edge(variable(name), key, label=slot)
        for slot, names in op.outputs.items():
            for name in names:
                graph.edge(key, variable(name), label=slot)


def _quoted(text: str) -> str:
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _listed(attrs: dict[str, str]) -> str:
    return f" [{', '.join(f'{name}={_quoted(value)}' for name, value in attrs.items())}]" if attrs else ""
