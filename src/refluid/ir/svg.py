"""Graphs as SVG pictures: every box stands below those it takes something from, blocks below each other."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from refluid.ir.drawing import Graph, Node

_LETTER, _LINE, _MARGIN, _GAP, _STEP = 6.6, 15, 20, 24, 34


class _Box:
    """A node with its place."""

    def __init__(self, node: Node, sources: list[_Box]):
        self.node, self.sources = node, sources
        self.layer = 1 + max((source.layer for source in sources), default=-1)
        self.width = max(len(line) for line in node.lines) * _LETTER + 16
        self.height = len(node.lines) * _LINE + 10
        self.x = self.y = 0.0


def to_svg(graph: Graph) -> str:
    """The graph as the text of an SVG file."""
    parts, top, width = [], float(_MARGIN), 200.0
    for title, nodes in graph.blocks:
        boxes: dict[str, _Box] = {}
        for node in nodes:
            sources = {source.key: boxes[source.key] for source in node.sources.values()}
            boxes[node.key] = _Box(node, list(sources.values()))
        if title:
            parts.append(f'<text x="{_MARGIN}" y="{top + 12:.0f}" font-weight="bold">{escape(title)}</text>')
            top += 2 * _LINE
        right, bottom = _place(list(boxes.values()), top)
        parts += [_curve(source, box) for box in boxes.values() for source in box.sources]
        parts += [_drawn(box) for box in boxes.values()]
        top, width = bottom + 2 * _STEP, max(width, right)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + _MARGIN:.0f}" height="{top:.0f}" '
        'font-family="DejaVu Sans Mono, monospace" font-size="11">\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _place(boxes: list[_Box], top: float) -> tuple[float, float]:
    """Places boxes layer by layer, close to their sources; returns the right and lower end."""
    layers: dict[int, list[_Box]] = defaultdict(list)
    for box in boxes:
        layers[box.layer].append(box)
    widest = max((sum(box.width + _GAP for box in layer) for layer in layers.values()), default=0.0)
    for number in sorted(layers):
        layer = layers[number]
        layer.sort(key=lambda box: _middle(box.sources, widest / 2))
        x = _MARGIN
        for box in layer:  # below its sources, or as far left as its neighbour allows
            box.x = max(x, _middle(box.sources, _MARGIN + widest / 2) - box.width / 2)
            box.y, x = top, box.x + box.width + _GAP
        right = _MARGIN + widest
        for box in reversed(layer):
            box.x = min(box.x, right - _GAP - box.width)
            right = box.x
        top += max(box.height for box in layer) + _STEP
    return max((box.x + box.width for box in boxes), default=0.0), top - _STEP


def _middle(boxes: list[_Box], otherwise: float) -> float:
    return sum(box.x + box.width / 2 for box in boxes) / len(boxes) if boxes else otherwise


def _curve(source: _Box, box: _Box) -> str:
    x, y, to_x, to_y = source.x + source.width / 2, source.y + source.height, box.x + box.width / 2, box.y
    bend = max(12.0, (to_y - y) / 2)
    return (
        f'<path d="M{x:.0f},{y:.0f} C{x:.0f},{y + bend:.0f} {to_x:.0f},{to_y - bend:.0f} {to_x:.0f},{to_y:.0f}" '
        'fill="none" stroke="#999999"/>'
    )


def _drawn(box: _Box) -> str:
    fill, ink = box.node.colors
    texts = "".join(
        f'<text x="{box.x + 8:.0f}" y="{box.y + 16 + i * _LINE:.0f}" fill="{ink}"'
        f"{' font-weight=' + chr(34) + 'bold' + chr(34) if i == 0 else ''}>{escape(line)}</text>"
        for i, line in enumerate(box.node.lines)
    )
    size = f'width="{box.width:.0f}" height="{box.height:.0f}"'
    return f'<rect x="{box.x:.0f}" y="{box.y:.0f}" {size} rx="5" fill="{fill}"/>{texts}'
