"""What a launcher shows: lines with their writer's name, and on a terminal one line at the bottom that is rewritten.

Lines of the processes go to the output, the launcher's own words and the status line to the error stream.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TextIO

from refluid.runtime.launch.environment import Member

_COLOURS = (36, 33, 32, 35, 34, 31)
_ERASE = "\r\x1b[K"


class Screen:
    """Writes to two streams; the status line, and colours, only where someone can see them."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        self._status = ""

    def line(self, member: Member, text: str) -> None:
        """One line that a member wrote."""
        name = f"[{member}]"
        if _is_terminal(self._out) and "NO_COLOR" not in os.environ:
            colour = _COLOURS[(member.index * 2 + (member.role == "server")) % len(_COLOURS)]
            name = f"\x1b[{colour}m{name}\x1b[0m"
        self._write(self._out, f"{name} {text}")

    def say(self, text: str) -> None:
        """One line of the launcher itself."""
        self._write(self._err, f"[launch] {text}")

    def status(self, text: str) -> None:
        """Replaces the line at the bottom."""
        if not _is_terminal(self._err):
            return
        text = "".join(sign if sign.isprintable() else " " for sign in text)
        text = text[: shutil.get_terminal_size().columns - 1]
        if text != self._status:
            self._status = text
            _put(self._err, f"{_ERASE}{text}")

    def close(self) -> None:
        """Takes the line at the bottom away."""
        if self._status:
            _put(self._err, _ERASE)
            self._status = ""

    def _write(self, stream: TextIO, text: str) -> None:
        if self._status:
            _put(self._err, _ERASE)
        _put(stream, f"{text}\n")
        if self._status:
            _put(self._err, self._status)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _put(stream: TextIO, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody reads on; the job goes on, and its logs are complete
        stream.write(text)
        stream.flush()
