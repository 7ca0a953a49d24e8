"""What a launcher shows: lines of its processes with their names, and on a terminal a status line at the bottom.

Lines of processes go to the output, messages of the launcher and the status line to the error stream. rich draws where
both are terminals, because only one writer can keep the status line in place; elsewhere lines are written as they are.
"""

from __future__ import annotations

import contextlib
import os
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from refluid.runtime.launch.environment import Member

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red")


class Screen:
    """Writes lines to two streams, and a status line and colors to terminals only."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out, self._err = out, err
        self._console = Console(file=err, highlight=False) if _is_terminal(err) else None
        self._shared = self._console is not None and _is_terminal(out)
        self._live: Live | None = None
        self._status = ""

    def line(self, member: Member, text: str) -> None:
        """Writes one line of a member's output."""
        if self._console is not None and self._shared:
            color = _COLORS[(member.index * 2 + (member.role == "server")) % len(_COLORS)]
            self._console.print(Text.assemble((f"[{member}]", color), " ", Text.from_ansi(text)), soft_wrap=True)
        else:
            _write(self._out, f"[{member}] {text}\n")

    def say(self, text: str) -> None:
        """Writes one line of the launcher itself."""
        if self._console is not None:
            self._console.print(Text(f"[launch] {text}"), soft_wrap=True)
        else:
            _write(self._err, f"[launch] {text}\n")

    def status(self, text: str) -> None:
        """Replaces the status line."""
        if self._console is None or text == self._status:
            return
        self._status = text
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        shown = "".join(sign if sign.isprintable() else " " for sign in text)
        self._live.update(Text(shown, no_wrap=True, overflow="crop"), refresh=True)

    def close(self) -> None:
        """Removes the status line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _write(stream: TextIO, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader is gone; the job goes on, and its logs are complete
        stream.write(text)
        stream.flush()
