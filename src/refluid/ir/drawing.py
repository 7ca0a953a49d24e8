"""Programs as graphs: boxes for operators, feeds and fetches, arrows for the variables between them.

Parameters are written into the boxes of the operators that use them, so that the graph of a large model stays readable.
A graph is written as Graphviz text or as an SVG picture; neither needs anything installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from refluid.files.storage import AnyPath, at
from refluid.files.writing import atomic_write
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.overwritten import named_inputs
from refluid.ir.program import Program

COLORS = {"op": ("#303a3a", "#ffffff"), "feed": ("#148b97", "#ffffff"), "fetch": ("#b5651d", "#ffffff")}
_HIGHLIGHT = ("#ffa500", "#000000")
_NAMED = 3  # parameters that a box names before it counts the rest


@dataclass
class Node:
    """A box."""

    key: str
    kind: str  # op, feed or fetch
    lines: list[str]
    colors: tuple[str, str]  # of the box and its text
    sources: dict[str, Node] = field(default_factory=dict)  # variable -> the box it comes from
    attrs: Mapping[str, str] = field(default_factory=dict)  # for Graphviz


class Graph:
    """The boxes of one or more blocks, each after those it takes something from."""

    def __init__(self, name: str = "program", **attrs: str):
        self._name, self._attrs = name, attrs
        self.blocks: list[tuple[str, list[Node]]] = []  # a title, and the boxes of a block

    def add(
        self, block: Block, title: str = "", highlights: Iterable[str] = (), attrs: Mapping[str, str] | None = None
    ) -> None:
        """Adds the operators of a block.

        Args:
          title: names the block where there are several.
          highlights: regular expressions; operators that use or write variables with such names stand out.
          attrs: Graphviz attributes of the operators' boxes.
        """
        patterns = [re.compile(pattern) for pattern in highlights]
        nodes: list[Node] = []
        writers: dict[str, Node] = {}  # variable -> its last writer so far
        for index, op in enumerate(block.ops):
            if op.type == "feed":
                continue
            read = list(dict.fromkeys(name for names in named_inputs(op).values() for name in names))
            held = [name for name in read if name not in writers and _is_persistable(block, name)]
            for name in read:
                if name not in writers and name not in held and name in block.vars:  # fed, or given to an inner block
                    writers[name] = Node(f"{title} feed {name}".strip(), "feed", [_shown(block, name)], COLORS["feed"])
                    nodes.append(writers[name])
            kind = "fetch" if op.type == "fetch" else "op"
            stands_out = any(p.match(name) for p in patterns for name in (*held, *op.output_arg_names))
            node = Node(
                f"{title} op {index}".strip(),
                kind,
                [f"fetch {name}" for name in read] if kind == "fetch" else _lines(block, op, held),
                _HIGHLIGHT if stands_out else COLORS[kind],
                {name: writers[name] for name in read if name in writers},
                attrs or {},
            )
            writers.update(dict.fromkeys(op.output_arg_names, node))
            nodes.append(node)
        self.blocks.append((title, nodes))

    @property
    def source(self) -> str:
        """The graph as Graphviz text."""
        lines = [f"  {name}={_quoted(value)};" for name, value in self._attrs.items()]
        nodes = [node for _, block in self.blocks for node in block]
        for node in nodes:
            fill, ink = node.colors
            style = {"shape": "box", "style": "rounded,filled", "color": fill, "fontcolor": ink, **node.attrs}
            lines.append(f"  {_quoted(node.key)}{_listed({'label': chr(10).join(node.lines), **style})};")
        for node in nodes:
            for name, source in node.sources.items():
                lines.append(f"  {_quoted(source.key)} -> {_quoted(node.key)}{_listed({'label': name})};")
        return "\n".join([f"digraph {_quoted(self._name)} {{", *lines, "}", ""])

    def save(self, path: str) -> list[AnyPath]:
        """Writes the Graphviz text, and where Graphviz is installed a PDF beside it; returns the files written."""
        text, dot = at(path), shutil.which("dot")
        with atomic_write(text) as stream:
            stream.write(self.source.encode())
        if dot is None or not isinstance(text, Path):
            return [text]
        picture = text.with_suffix(".pdf")
        subprocess.run([dot, "-Tpdf", str(text), "-o", str(picture)], check=True)
        return [text, picture]


def graph_of(program: Program) -> Graph:
    """The graph of all blocks of a program."""
    graph = Graph("model", rankdir="TB")
    for block in program.blocks:
        graph.add(block, f"block {block.idx}" if block.idx else "")
    return graph


def _lines(block: Block, op: Operator, held: list[str]) -> list[str]:
    """An operator's type with the shape of its result, its inner blocks, and its parameters."""
    slots = [slot for slot in ("Out", "Output", "Y", "Hidden") if op.output(slot)] or list(op.outputs)
    shapes = [_shape(block, name) for slot in slots[:1] for name in op.output(slot)[:1]]
    inner = [f"block {each.idx}" for each in op.sub_blocks()]
    set_ = [f"sets {_shown(block, n)}" for n in op.output_arg_names if n not in held and _is_persistable(block, n)]
    more = [f"… {len(held) - _NAMED} more"] if len(held) > _NAMED else []
    return [
        " ".join([op.type, *shapes]).rstrip(),
        *inner,
        *(_shown(block, name) for name in held[:_NAMED]),
        *more,
        *set_[:_NAMED],
    ]


def _is_persistable(block: Block, name: str) -> bool:
    variable = block.find_var_recursive(name)
    return variable is not None and variable.persistable


def _shown(block: Block, name: str) -> str:
    return f"{name} {_shape(block, name)}".rstrip()


def _shape(block: Block, name: str) -> str:
    variable = block.find_var_recursive(name)
    return "" if variable is None or not variable.shape else "x".join("?" if d < 0 else str(d) for d in variable.shape)


def _quoted(text: str) -> str:
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _listed(attrs: Mapping[str, str]) -> str:
    return f" [{', '.join(f'{name}={_quoted(value)}' for name, value in attrs.items())}]"
