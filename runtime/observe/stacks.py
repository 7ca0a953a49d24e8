"""What the threads of this process execute, in a line each: those that do something of ours or of the script."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import refluid
from refluid.ir.source import is_ours
from refluid.ir.whereabouts import LIBRARIES
from refluid.runtime import observe

_DEEPEST = 10  # frames, from the innermost
# Where threads of ours wait when there is nothing to do.
_IDLE = (
    ("server/service.py", "__call__"),
    ("server/durable/log.py", "_write_loop"),
    ("trainer/membership.py", "_send_heartbeats"),
    ("transport/listener.py", "streamed"),
)
_ROOTS = (Path(refluid.__file__).parents[1], Path(observe.__file__).parents[2])  # of refluid and paddle, of the runtime


def stacks() -> dict[str, str]:
    """Stacks of threads, innermost frame first, as in ``train.py:31 in main``, by the names of the threads.

    Threads at the same place share a line. Left out are threads of libraries alone, those that wait for work, and the
    caller's.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: dict[str, list[str]] = {}
    for ident, frame in sys._current_frames().items():
        name = names.get(ident, str(ident))
        text = describe(frame) if ident != threading.get_ident() else ""
        if text:
            found.setdefault(text, []).append(name)
    return {_names(sorted(names)): text for text, names in found.items()}


def describe(frame: FrameType | None) -> str:
    """A stack in a line; nothing if all of it is of libraries. Of libraries it has the innermost frame only."""
    parts: list[str] = []
    innermost, counts = frame, False
    while frame is not None and len(parts) < _DEEPEST:
        is_of_library = _is_of_library(frame)
        if not is_of_library and not counts and _waits_for_work(frame):
            return ""
        counts |= not is_of_library
        if frame is innermost or not is_of_library:
            parts.append(f"{_place(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(parts) if counts else ""


def _waits_for_work(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return any(file.endswith(f"runtime/{place}") and frame.f_code.co_name == name for place, name in _IDLE)


def _is_of_library(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith((*LIBRARIES, "<frozen")) and not is_ours(frame)


def _place(filename: str) -> str:
    for root in map(str, _ROOTS):
        if filename.startswith(f"{root}/"):
            return filename[len(root) + 1 :]
    return "/".join(Path(filename).parts[-2:]) if filename.startswith(LIBRARIES) else filename


def _names(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
