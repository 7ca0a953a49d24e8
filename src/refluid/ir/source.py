"""The user's source line: the nearest stack frame outside refluid and paddle."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import refluid

# paddle and refluid are installed side by side; in a checkout, transpiler and runtime may live elsewhere.
_OURS = tuple(
    str(folder) + "/"
    for root in [Path(refluid.__file__).parent]
    for folder in (root, root.parent / "paddle", root.parents[1] / "transpiler", root.parents[1] / "runtime")
)


class SourceLine(NamedTuple):
    """A line of the user's script; its text is read only when printed."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        try:
            text = linecache.getline(self.filename, self.line).strip()
        except (IndexError, TypeError):  # another thread fills its cache
            text = ""
        place = f"{self.filename}:{self.line} in {self.function}"
        return f"{place}: {text}" if text else place


def is_ours(frame: FrameType) -> bool:
    """Whether a frame executes code of refluid or paddle."""
    return frame.f_code.co_filename.startswith(_OURS)


def user_line(frame: FrameType | None = None, libraries: tuple[str, ...] = ()) -> SourceLine | None:
    """Returns the line of the innermost frame outside refluid and paddle.

    Args:
      frame: where to begin; by default at the caller.
      libraries: further folders whose lines are of no interest.
    """
    frame, skipped = frame or sys._getframe(1), _OURS + libraries
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(skipped) and not filename.startswith("<frozen") and "contextlib" not in filename:
            return SourceLine(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None
