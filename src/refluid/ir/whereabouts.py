"""Where a thread of the user's script is: to say at which line a rank is that others wait for, and whose code runs."""

from __future__ import annotations

import sys
import sysconfig
from typing import NamedTuple

from refluid.ir.source import is_ours, user_line

_FOLDERS = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_PACKAGES = {
    path for path in sys.path if path.endswith(("site-packages", "dist-packages"))
}  # of other environments, too
LIBRARIES = tuple(f"{folder}/" for folder in _FOLDERS | _PACKAGES)


class Whereabouts(NamedTuple):
    """Where a thread is.

    Attributes:
      line: the innermost line outside of libraries, as in ``train.py:31 in main: loss = exe.run(...)``; or nothing.
      in_script: whether the script itself executes, or a library that it calls, rather than a call of refluid.
    """

    line: str
    in_script: bool


def find(thread: int) -> Whereabouts:
    """Where the thread with this identifier is."""
    innermost = frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARIES) and not is_ours(frame):
        frame = frame.f_back
    line = user_line(innermost, LIBRARIES) if innermost is not None else None
    return Whereabouts("" if line is None else str(line), frame is not None and not is_ours(frame))
