"""Charts: drawn by matplotlib into memory, without windows, global figures or a chosen backend; small ones as SVG."""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")
_WIDTH, _HEIGHT, _MARGIN = 360, 90, 4


def figure() -> tuple[Any, Any]:
    """A new figure and its axes, or an error that names the package to install."""
    try:
        made = importlib.import_module("matplotlib.figure").Figure()
    except ImportError as error:
        raise ImportError(
            "charts need the package matplotlib: pip install matplotlib, or refluid with its extra [plot]"
        ) from error
    return made, made.subplots()


def show_in_notebook(drawn: Any) -> None:
    """Replaces the output of the current notebook cell by a figure."""
    try:
        display = importlib.import_module("IPython.display")
    except ImportError as error:
        raise ImportError(
            "a chart without a path is shown in a notebook, which needs the package IPython; elsewhere pass a path"
        ) from error
    stream = io.BytesIO()
    drawn.savefig(stream, format="png")
    display.clear_output(wait=True)
    display.display(display.Image(data=stream.getvalue()))


def small_chart(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Curves of (steps, values) by title as a small SVG picture with the last value of each; needs no matplotlib."""
    finite = {
        title: [(x, y) for x, y in zip(steps, map(float, values), strict=True) if math.isfinite(y)]
        for title, (steps, values) in curves.items()
    }
    every = [point for points in finite.values() for point in points]
    if not every:
        return "<i>no points</i>"
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*every, strict=True))

    def place(x: float, y: float) -> str:
        across = (x - left) / ((right - left) or 1) * (_WIDTH - 2 * _MARGIN) + _MARGIN
        down = (high - y) / ((high - low) or 1) * (_HEIGHT - 2 * _MARGIN) + _MARGIN
        return f"{across:.1f},{down:.1f}"

    drawn, words = [], []
    for (title, points), color in zip(finite.items(), _COLORS * len(finite), strict=False):
        if points:
            line = " ".join(place(*point) for point in points)
            drawn.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{line}"/>')
            words.append(f'<span style="color:{color}">{escape(title)} {points[-1][1]:.4g}</span>')
    box = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">{"".join(drawn)}</svg>'
    return f"<div>{box}<br/>{', '.join(words)} at step {right:g}</div>"
