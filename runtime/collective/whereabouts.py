"""Which line of the user's script the main thread executes: to say where a rank is that others wait for."""

from __future__ import annotations

import sys
import sysconfig
import threading

from refluid.ir.source import user_line

_LIBRARIES = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def script_line() -> str:
    """The innermost line outside of libraries, as in ``train.py:31 in main: loss = exe.run(...)``; or nothing."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    line = user_line(frame, _LIBRARIES) if frame is not None else None
    return str(line) if line is not None else ""
