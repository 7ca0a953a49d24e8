"""One child process of a job: in a session of its own, its output read line by line, ended with all it started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from refluid.runtime.launch.environment import Member

LAST_LINES = 20
_PR_SET_PDEATHSIG = 1


class Child:
    """A running member: feed `read_output` when its pipe is ready, and ask `code` whether it has ended."""

    def __init__(
        self, member: Member, command: Sequence[str], environment: Mapping[str, str], log: Path | None
    ) -> None:
        self.member = member
        self.log_path = log
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.output_open = True
        self._log: IO[bytes] | None = log.open("wb") if log is not None else None
        self._rest = b""
        self._code: int | None = None
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # what it starts itself is ended with it, by its process group
            preexec_fn=_die_with_parent(),
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)

    def fileno(self) -> int:
        """The pipe of its output, for a selector."""
        return self._pipe.fileno()

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self) -> int | None:
        """Its exit code (as a shell has it: 128 + number for a signal), or None while it runs."""
        if self._code is None:
            self._code = self._peek()
        return self._code

    def _peek(self) -> int | None:
        """The exit code of a process that stays a zombie: until `end` nobody else can get the number of its group."""
        if not hasattr(os, "waitid"):
            code = self._process.poll()
            return code if code is None or code >= 0 else 128 - code
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status

    def read_output(self, show: Callable[[str], None]) -> None:
        """Moves what it has written into its log, and shows every complete line."""
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

    def signal(self, number: int) -> None:
        """Sends a signal to it and to whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all gone; macOS answers so for zombies
            os.killpg(self.pid, number)

    def end(self) -> None:
        """Ends what is left of its process group, and waits for it."""
        self.code()
        self.signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Closes pipe and log."""
        self._pipe.close()
        if self._log is not None:
            self._log.close()


def describe_end(code: int) -> str:
    """An exit code in words."""
    if code <= 128 or code - 128 not in set(signal.Signals):
        return f"ended with exit code {code}"
    name = signal.Signals(code - 128).name
    hint = ", perhaps because memory ran out" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux, what a child does first: ask for SIGTERM should the launcher itself be killed."""
    if not sys.platform.startswith("linux"):
        return None
    library, parent = ctypes.CDLL(None), os.getpid()

    def ask() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask
