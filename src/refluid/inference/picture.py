"""A model's graph as an SVG picture, drawn here: no other program is needed to make it or to look at it.

Operators are boxes, under those whose results they take; feeds are above them, fetches below. Parameters are written
into the boxes of the operators that read them. Blocks inside operators are drawn one below the other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from html import escape

from refluid.ir import Program
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.overwritten import named_inputs

_LETTER, _LINE, _MARGIN, _GAP, _STEP = 6.6, 15, 20, 24, 34
_COLORS = {"op": ("#303a3a", "#ffffff"), "feed": ("#148b97", "#ffffff"), "fetch": ("#b5651d", "#ffffff")}
_MORE = 3  # parameters that a box names before it counts the rest


@dataclass
class _Node:
    kind: str
    lines: list[str]
    sources: list[_Node] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _LETTER + 16

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 10


def picture(program: Program) -> str:
    """The graph of a program, as the text of an SVG file."""
    parts, top, width = [], float(_MARGIN), 200.0
    for block in program.blocks:
        nodes = _nodes(block)
        if block.idx:
            parts.append(f'<text x="{_MARGIN}" y="{top + 12:.0f}" font-weight="bold">block {block.idx}</text>')
            top += 2 * _LINE
        right, bottom = _place(nodes, top)
        parts += [_curve(source, node) for node in nodes for source in node.sources]
        parts += [_box(node) for node in nodes]
        top, width = bottom + 2 * _STEP, max(width, right)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + _MARGIN:.0f}" height="{top:.0f}" '
        'font-family="DejaVu Sans Mono, monospace" font-size="11">\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _nodes(block: Block) -> list[_Node]:
    """Feeds, operators and fetches, each after those it takes something from."""
    nodes: list[_Node] = []
    last: dict[str, _Node] = {}  # variable -> who wrote it last
    for op in block.ops:
        if op.type == "feed":
            continue
        read = list(dict.fromkeys(name for names in named_inputs(op).values() for name in names))
        held = [n for n in read if (v := block.find_var_recursive(n)) is not None and v.persistable and n not in last]
        for name in read:
            if name not in last and name not in held and name in block.vars:  # fed, or given to an inner block
                last[name] = _Node("feed", [_shown(block, name)])
                nodes.append(last[name])
        if op.type == "fetch":
            node = _Node("fetch", [f"fetch {name}" for name in read])
        else:
            more = [f"… {len(held) - _MORE} more"] if len(held) > _MORE else []
            inner = [f"block {each.idx}" for each in op.sub_blocks()]
            lines = [_title(block, op), *inner, *(_shown(block, name) for name in held[:_MORE]), *more]
            node = _Node("op", lines)
        node.sources = list({id(last[name]): last[name] for name in read if name in last}.values())
        node.layer = 1 + max((source.layer for source in node.sources), default=-1)
        last.update(dict.fromkeys(op.output_arg_names, node))
        nodes.append(node)
    return nodes


def _place(nodes: list[_Node], top: float) -> tuple[float, float]:
    """Gives nodes their places, layer by layer, near what they take from; returns the right and lower end."""
    layers: dict[int, list[_Node]] = defaultdict(list)
    for node in nodes:
        layers[node.layer].append(node)
    widest = max((sum(n.width + _GAP for n in layer) for layer in layers.values()), default=0.0)
    for number in sorted(layers):
        layer = layers[number]
        layer.sort(key=lambda node: _middle(node.sources, widest / 2))
        x = _MARGIN
        for node in layer:  # as far left as the neighbour lets it, or under its sources
            node.x = max(x, _middle(node.sources, _MARGIN + widest / 2) - node.width / 2)
            node.y, x = top, node.x + node.width + _GAP
        right = _MARGIN + widest
        for node in reversed(layer):
            node.x = min(node.x, right - _GAP - node.width)
            right = node.x
        top += max(node.height for node in layer) + _STEP
    return max((node.x + node.width for node in nodes), default=0.0), top - _STEP


def _middle(nodes: list[_Node], otherwise: float) -> float:
    return sum(n.x + n.width / 2 for n in nodes) / len(nodes) if nodes else otherwise


def _curve(source: _Node, node: _Node) -> str:
    x, y, to_x, to_y = source.x + source.width / 2, source.y + source.height, node.x + node.width / 2, node.y
    bend = max(12.0, (to_y - y) / 2)
    return (
        f'<path d="M{x:.0f},{y:.0f} C{x:.0f},{y + bend:.0f} {to_x:.0f},{to_y - bend:.0f} {to_x:.0f},{to_y:.0f}" '
        'fill="none" stroke="#999999"/>'
    )


def _box(node: _Node) -> str:
    fill, ink = _COLORS[node.kind]
    texts = "".join(
        f'<text x="{node.x + 8:.0f}" y="{node.y + 16 + i * _LINE:.0f}" fill="{ink}"'
        f"{' font-weight=' + chr(34) + 'bold' + chr(34) if i == 0 else ''}>{escape(line)}</text>"
        for i, line in enumerate(node.lines)
    )
    size = f'width="{node.width:.0f}" height="{node.height:.0f}"'
    return f'<rect x="{node.x:.0f}" y="{node.y:.0f}" {size} rx="5" fill="{fill}"/>{texts}'


def _title(block: Block, op: Operator) -> str:
    """An operator's type, and the shape of what it is there for."""
    slots = [slot for slot in ("Out", "Output", "Y", "Hidden") if op.output(slot)] or list(op.outputs)
    shapes = [_shape(block, name) for slot in slots[:1] for name in op.output(slot)[:1]]
    return " ".join([op.type, *shapes]).rstrip()


def _shown(block: Block, name: str) -> str:
    return f"{name} {_shape(block, name)}".rstrip()


def _shape(block: Block, name: str) -> str:
    variable = block.find_var_recursive(name)
    return "" if variable is None or not variable.shape else "x".join("?" if d < 0 else str(d) for d in variable.shape)
