"""One child process of a job: it has its own session, its output is read by lines, and its children end with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from refluid.runtime.launch.environment import Member

LAST_LINES = 20
_PR_SET_PDEATHSIG = 1


class Child:
    """A running member: call `read_output` when its pipe is readable; `code` says whether it has ended.

    One that ``continues`` for another, which has ended, goes on with its log.
    """

    def __init__(
        self,
        member: Member,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path | None,
        *,
        continues: bool = False,
    ) -> None:
        self.member = member
        self.log_path = log
        self.began = time.monotonic()
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.output_open = True
        self._log: IO[bytes] | None = log.open("ab" if continues else "wb") if log is not None else None
        self._rest = b""
        self._code: int | None = None
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its own children are ended with it, by process group
            preexec_fn=_die_with_parent(),
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)

    def fileno(self) -> int:
        """The pipe of its output, for selectors."""
        return self._pipe.fileno()

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self) -> int | None:
        """Its exit code as shells report it (128 plus the number of a signal), or None while it runs."""
        if self._code is None:
            self._code = self._peek()
        return self._code

    def _peek(self) -> int | None:
        """The exit code without reaping: until `end` no other process can get the number of its group."""
        if not hasattr(os, "waitid"):
            code = self._process.poll()
            return code if code is None or code >= 0 else 128 - code
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status

    def read_output(self, show: Callable[[str], None]) -> None:
        """Copies available output to the log and passes every complete line to ``show``."""
        while self.output_open:
            try:
                piece = os.read(self._pipe.fileno(), 1 << 16)
            except BlockingIOError:
                return
            self.output_open = bool(piece)
            if self._log is not None:
                self._log.write(piece)
                self._log.flush()
            *lines, self._rest = (self._rest + piece).split(b"\n")
            if not piece and self._rest:
                lines, self._rest = [self._rest], b""
            for line in lines:
                text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]  # progress bars rewrite a line
                self.last_lines.append(text)
                show(text)

    def note(self, line: str) -> None:
        """Adds a line to the log."""
        if self._log is not None:
            self._log.write(line.encode() + b"\n")

    def signal(self, number: int) -> None:
        """Sends a signal to the process and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; macOS raises the second for zombies
            os.killpg(self.pid, number)

    def end(self) -> None:
        """Kills what is left of its process group and reaps it."""
        self.code()
        self.signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Closes pipe and log."""
        self._pipe.close()
        if self._log is not None:
            self._log.close()


def describe_end(code: int) -> str:
    """Describes an exit code for messages."""
    if code <= 128 or code - 128 not in set(signal.Signals):
        return f"exited with code {code}"
    name = signal.Signals(code - 128).name
    hint = ", possibly because memory ran out" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux, makes a child receive SIGTERM if the launcher is killed."""
    if not sys.platform.startswith("linux"):
        return None
    library, parent = ctypes.CDLL(None), os.getpid()

    def request() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return request
