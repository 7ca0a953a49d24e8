"""Starts the processes of a job on this machine and supervises them: logs, a status line, the first failure, the end.

One thread, one loop: it wakes up for output of a child, for the end of one, and for Ctrl-C. A job is over when its
trainers have ended; servers then have some time to finish by themselves before they are stopped.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from refluid.runtime.launch.environment import VARIABLES, Member, Placement
from refluid.runtime.launch.ports import HeldPorts
from refluid.runtime.launch.processes import Child, describe_end
from refluid.runtime.launch.screen import Screen
from refluid.runtime.launch.tokens import DrawnToken, is_given

_TICK = 0.2  # seconds between updates of the status line when nothing happens


@dataclass
class Launcher:
    """Runs ``command`` once for each of ``members``, with the environment of its place in the job.

    Args:
        placement: all processes of the job, here and on other machines.
        command: the program and its arguments.
        members: the processes to start on this machine; by default all.
        log_dir: the folder for one log per process, or None for none.
        quiet: write the processes' output to their logs only.
        grace: seconds that servers have to finish after the last trainer, and any process after SIGTERM.
        metrics_port: the first of as many ports, one for each process's /metrics.
    """

    placement: Placement
    command: Sequence[str]
    members: Sequence[Member] = ()
    log_dir: Path | None = None
    quiet: bool = False
    grace: float = 10.0
    metrics_port: int | None = None
    ports: HeldPorts = field(default_factory=HeldPorts)

    def run(self) -> int:
        """Runs the job and returns its exit code: 0, that of the first failure, or 128 plus the number of a signal."""
        self._screen = Screen(sys.stdout, sys.stderr)
        self._children: list[Child] = []
        self._token: DrawnToken | None = None
        with _Signals() as self._signals, selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            try:
                self._start()
                for child in self._children:
                    selector.register(child, selectors.EVENT_READ, child)
                return self._watch(selector)
            finally:
                self._finish(selector)

    def _start(self) -> None:
        self.ports.release_for_children()
        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)
        all_here = len(self.members or self.placement.members()) == len(self.placement.members())
        if all_here and not is_given(os.environ):  # launchers on several machines would draw different ones
            self._token = DrawnToken(self.log_dir)
        for place, member in enumerate(self.members or self.placement.members()):
            log = self.log_dir / member.log_name if self.log_dir is not None else None
            self._children.append(Child(member, self.command, self._environment(member, place), log))
        where = f", logs in {self.log_dir}{os.sep}" if self.log_dir is not None else ""
        self._screen.say(f"started {_counted(self._children)}{where}")
        if self.placement.servers:
            path = None if self._token is None else self._token.path
            secret = f"FLAGS_rpc_token_file={path} " if path is not None else ""
            self._screen.say(f"watch the job with: {secret}refluid status {','.join(self.placement.servers)}")

    def _environment(self, member: Member, place: int) -> Mapping[str, str]:
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        environment |= self.placement.environment(member)
        environment["PYTHONUNBUFFERED"] = "1"
        if self._token is not None:
            environment |= self._token.variables
        if not self.placement.servers:
            environment.setdefault("CPU_NUM", "1")  # one process for each device
        if self.metrics_port is not None:
            environment["REFLUID_METRICS_PORT"] = str(self.metrics_port + place if self.metrics_port else 0)
        return environment

    def _watch(self, selector: selectors.BaseSelector) -> int:
        begin = time.monotonic()
        trainers = [child for child in self._children if child.member.role == "trainer"]
        over: float | None = None  # when the last trainer ended
        while True:
            self._wait(selector)
            self._screen.status(_progress(self._children, time.monotonic() - begin))
            ending = self._signals.ending
            if ending is not None:
                self._screen.say(f"{signal.Signals(ending).name}: stopping {_counted(self._running())}")
                return 128 + ending
            failed = next((child for child in self._children if child.code()), None)
            if failed is not None:
                return self._failed(failed, time.monotonic() - begin)
            running = self._running()
            if not running:
                return 0
            if over is None and trainers and not any(child in running for child in trainers):
                over = time.monotonic()
            if over is not None and time.monotonic() - over >= self.grace:
                names = ", ".join(str(child.member) for child in running)
                self._screen.say(f"stopping {names}: still running {self.grace:g} s after the last trainer ended")
                return 0

    def _wait(self, selector: selectors.BaseSelector) -> None:
        for key, _ in selector.select(_TICK):
            child = key.data
            if child is None:
                self._signals.drain()
                continue
            self._show_output(child)
            if not child.output_open:
                selector.unregister(child)

    def _show_output(self, child: Child) -> None:
        child.read_output(lambda line: None if self.quiet else self._screen.line(child.member, line))

    def _failed(self, failed: Child, seconds: float) -> int:
        self._show_output(failed)
        code = failed.code()
        assert code is not None
        where = f" ({failed.log_path})" if failed.log_path is not None else ""
        self._screen.say(f"{failed.member} {describe_end(code)} after {seconds:.0f} s; its last lines{where}:")
        for line in failed.last_lines or ["(it wrote nothing)"]:
            self._screen.say(f"  {line}")
        return code

    def _running(self) -> list[Child]:
        return [child for child in self._children if child.code() is None]

    def _finish(self, selector: selectors.BaseSelector) -> None:
        """Ends what still runs: SIGTERM, then SIGKILL after the grace period or at a second Ctrl-C."""
        self._signals.ending = None
        for child in self._running():
            child.signal(signal.SIGTERM)
        end = time.monotonic() + self.grace
        while self._running() and time.monotonic() < end and self._signals.ending is None:
            self._wait(selector)
        for child in self._running():
            self._screen.say(f"{child.member} did not stop in time; killing it")
        for child in self._children:
            child.end()
            self._show_output(child)
            child.close()
        if self._token is not None:
            self._token.remove()
        self.ports.close()
        self._screen.close()


def script_command(script: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a Python script with this interpreter."""
    if not Path(script).is_file():
        raise FileNotFoundError(f"script {script} does not exist")
    return [sys.executable, "-u", script, *arguments]


class _Signals:
    """While entered, keeps the last signal that ends a program; it and ends of children wake a selector."""

    _ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> _Signals:
        self.ending: int | None = None
        self._awake, self._waker = socket.socketpair()
        for end in (self._awake, self._waker):
            end.setblocking(False)
        self._before = {number: signal.signal(number, self._handle) for number in (*self._ENDING, signal.SIGCHLD)}
        self._fd_before = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        return self

    def fileno(self) -> int:
        """What a selector waits for."""
        return self._awake.fileno()

    def drain(self) -> None:
        """Discards the bytes that woke the selector; their signals were recorded by the handler."""
        with contextlib.suppress(BlockingIOError):
            self._awake.recv(4096)

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._awake.close()
        self._waker.close()

    def _handle(self, number: int, _: object) -> None:
        if number in self._ENDING:
            self.ending = number


def _counted(children: Sequence[Child]) -> str:
    counts = {role: sum(child.member.role == role for child in children) for role in ("server", "trainer")}
    return " and ".join(f"{count} {role}{'s' * (count > 1)}" for role, count in counts.items() if count) or "nothing"


def _progress(children: Sequence[Child], seconds: float) -> str:
    parts = []
    for role in ("server", "trainer"):
        codes = [child.code() for child in children if child.member.role == role]
        if codes:
            done = sum(code == 0 for code in codes)
            parts.append(f"{role}s {sum(code is None for code in codes)} running, {done} done")
    last = next((child for child in reversed(children) if child.last_lines), None)
    minutes, rest = divmod(int(seconds), 60)
    parts.insert(0, f"{minutes:d}:{rest:02d}")
    return " | ".join(parts) + (f" | {last.member}: {last.last_lines[-1]}" if last is not None else "")
