"""Charts, drawn by matplotlib into memory: no window, no global figure, no choice of a backend."""

from __future__ import annotations

import importlib
import io
from typing import Any


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
