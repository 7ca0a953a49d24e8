"""Pipe commands: a shell command per file, which reads the file and prints MultiSlot lines.

A command that fails ends the dataset with an error; closing the stream ends the command and everything it started.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from functools import cache
from typing import Any

from refluid.errors import PipeCommandError
from refluid.readers.threads import SLOW_JOIN_TIMEOUT, join, start

_PIPE_SIZE = 1 << 20  # lets the command go on while a chunk is parsed
_STDERR_LINES = 20  # that an error shows


class CommandStream(io.RawIOBase):
    """What a command prints, as a stream of bytes.

    Args:
      data: the stream that the command reads. It is closed with this one.
      file: its name, for errors.
    """

    def __init__(self, command: str, data: Any, file: str):
        super().__init__()
        self._command, self._data, self._file = command, data, file
        self._last_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._input_error: BaseException | None = None
        self._reaping = threading.RLock()  # so that nobody signals a process whose number is free again
        is_file = isinstance(data, io.FileIO)
        self._process = subprocess.Popen(
            [_shell(), "-c", command],
            stdin=data if is_file else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that all its processes can be ended together
        )
        self._stdout: Any = self._process.stdout
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self._errors_thread = start("pipe command", self._forward_errors)
        self._threads = [self._errors_thread] + ([] if is_file else [start("pipe command", self._send_input)])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Reads what there is; 0 at the end, if the command succeeded."""
        count = self._stdout.readinto1(buffer)
        if count == 0 and len(buffer) > 0:
            self._finish()
        return count

    def cancel(self) -> None:
        """Ends the command and everything it started; whoever reads sees the end. For any thread."""
        with self._reaping:
            self._kill_group()
        if isinstance(self._data, CommandStream):
            self._data.cancel()

    def _kill_group(self) -> None:
        if self._process.returncode is None:  # afterwards another group may have its number
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _wait(self) -> int:
        """The exit code of the command; what it has left running is ended."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            self._kill_group()
            return self._process.wait()

    def close(self) -> None:
        """Ends the command if it is still running, and waits for it."""
        if self.closed:
            return
        super().close()
        self.cancel()
        self._wait()
        for thread in self._threads:
            join(thread, SLOW_JOIN_TIMEOUT)  # a process that left the group may keep stderr open
        if any(thread.is_alive() for thread in self._threads):
            return  # it would wait for the thread that reads
        for stream in (self._process.stdout, self._process.stderr, self._process.stdin, self._data):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _finish(self) -> None:
        code = self._wait()
        join(self._errors_thread, SLOW_JOIN_TIMEOUT)
        if self._input_error is not None:
            raise self._input_error
        if code != 0:
            raise PipeCommandError(self._command, self._file, code, "\n".join(self._last_lines))

    def _forward_errors(self) -> None:
        """Shows what the command prints to stderr, and remembers the last lines."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace")
            self._last_lines.append(text.rstrip("\n"))
            sys.stderr.write(text)

    def _send_input(self) -> None:
        """Copies a stream that the command cannot read itself to its stdin."""
        stdin: Any = self._process.stdin
        try:
            shutil.copyfileobj(self._data, stdin)
            stdin.close()
        except BrokenPipeError:
            pass  # a command need not read everything
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
            self._input_error = error
            self.cancel()


@cache
def _shell() -> str:
    return shutil.which("bash") or "/bin/sh"
