"""Where the user wrote something: the nearest stack frame outside refluid and paddle."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import refluid

# paddle and refluid are installed side by side; the transpiler and the runtime may live elsewhere in a checkout.
_OURS = tuple(
    str(folder) + "/"
    for root in [Path(refluid.__file__).parent]
    for folder in (root, root.parent / "paddle", root.parents[1] / "transpiler", root.parents[1] / "runtime")
)


class SourceLine(NamedTuple):
    """A line of the user's script; the text is read only when somebody prints it."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        text = linecache.getline(self.filename, self.line).strip()
        place = f"{self.filename}:{self.line} in {self.function}"
        return f"{place}: {text}" if text else place


def user_line() -> SourceLine | None:
    """The line of the innermost frame that is not ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_OURS) and not filename.startswith("<frozen") and "contextlib" not in filename:
            return SourceLine(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None
