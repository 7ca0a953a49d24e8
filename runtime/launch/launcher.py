"""Starts the processes of a job on this machine and supervises them: logs, a status line, the first failure, the end.

One thread, one loop: it wakes up for output of a child, for the end of one, and for Ctrl-C. A process that fails is
started again as long as it has restarts, and ends the job otherwise. A job is over when its trainers have ended;
servers then have some time to finish by themselves before they are stopped.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
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
from refluid.runtime.launch.restarts import Restarts
from refluid.runtime.launch.screen import Screen
from refluid.runtime.launch.tokens import DrawnToken, is_given

_TICK = 0.2  # seconds between updates of the status line when nothing happens
_KEPT_STATE = ".restarts"  # below log_dir: what servers that are started again go on from
_SNAPSHOTS, _LOST = "FLAGS_rpc_server_snapshots", "FLAGS_rpc_lost_trainer"


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
        restarts: how often in a row each process is started again when it fails.
    """

    placement: Placement
    command: Sequence[str]
    members: Sequence[Member] = ()
    log_dir: Path | None = None
    quiet: bool = False
    grace: float = 10.0
    metrics_port: int | None = None
    ports: HeldPorts = field(default_factory=HeldPorts)
    restarts: int = 0

    def run(self) -> int:
        """Runs the job and returns its exit code: 0, that of the first failure, or 128 plus the number of a signal."""
        self._screen = Screen(sys.stdout, sys.stderr)
        self._check_restarts()
        self._children: list[Child] = []
        self._lives: dict[Member, Restarts] = {}
        self._environments: dict[Member, Mapping[str, str]] = {}
        self._token: DrawnToken | None = None
        with _Signals() as self._signals, selectors.DefaultSelector() as selector:
            selector.register(self._signals, selectors.EVENT_READ)
            try:
                self._start()
                for child in self._children:
                    selector.register(child, selectors.EVENT_READ, child)
                self._selector = selector
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
        if self._keeps_state:
            shutil.rmtree(self._state_folder, ignore_errors=True)  # of another job
        for place, member in enumerate(self.members or self.placement.members()):
            self._lives[member] = Restarts(self.restarts)
            self._environments[member] = self._environment(member, place)
            self._children.append(self._start_child(member))
        where = f", logs in {self.log_dir}{os.sep}" if self.log_dir is not None else ""
        self._screen.say(f"started {_counted(self._children)}{where}")
        if self.placement.servers:
            path = None if self._token is None else self._token.path
            secret = f"FLAGS_rpc_token_file={path} " if path is not None else ""
            self._screen.say(f"watch the job with: {secret}refluid status {','.join(self.placement.servers)}")

    def _start_child(self, member: Member, *, continues: bool = False) -> Child:
        log = self.log_dir / member.log_name if self.log_dir is not None else None
        return Child(member, self.command, self._environments[member], log, continues=continues)

    def _environment(self, member: Member, place: int) -> Mapping[str, str]:
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        environment |= self.placement.environment(member)
        environment["PYTHONUNBUFFERED"] = "1"
        if self._token is not None:
            environment |= self._token.variables
        if not self.placement.servers:
            environment.setdefault("CPU_NUM", "1")  # one process for each device
        if self.restarts:
            environment |= self._restart_variables(environment)
        if self.metrics_port is not None:
            environment["REFLUID_METRICS_PORT"] = str(self.metrics_port + place if self.metrics_port else 0)
        return environment

    def _watch(self, selector: selectors.BaseSelector) -> int:
        begin = time.monotonic()
        has_trainers = any(child.member.role == "trainer" for child in self._children)
        over: float | None = None  # when the last trainer ended
        while True:
            self._wait(selector)
            self._screen.status(_progress(self._children, time.monotonic() - begin))
            ending = self._signals.ending
            if ending is not None:
                self._screen.say(f"{signal.Signals(ending).name}: stopping {_counted(self._running())}")
                return 128 + ending
            for failed in [child for child in self._children if child.code()]:
                if over is not None or not self._will_restart(failed):
                    return self._failed(failed, time.monotonic() - begin)
            if (code := self._come_too_late()) is not None:
                return code
            self._restart_due()
            running = self._running()
            left = [child.member for child in running] + self._waiting()
            if not left:
                return 0
            if over is None and has_trainers and not any(member.role == "trainer" for member in left):
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

    # Restarts

    def _check_restarts(self) -> None:
        if not self.restarts:
            return
        if not self.placement.servers:
            raise ValueError(
                "--restarts is for jobs with parameter servers; collective training starts again as a whole"
            )
        if self._has_servers and self.log_dir is None and not os.environ.get(_SNAPSHOTS):
            raise ValueError(
                f"--restarts needs a folder for what servers go on from: give --log_dir, or set {_SNAPSHOTS}"
            )

    @property
    def _keeps_state(self) -> bool:
        """Whether servers keep their state in a folder of this launcher."""
        given = bool(os.environ.get(_SNAPSHOTS))
        return bool(self.restarts) and self._has_servers and self.log_dir is not None and not given

    @property
    def _has_servers(self) -> bool:
        return any(member.role == "server" for member in self.members or self.placement.members())

    @property
    def _state_folder(self) -> Path:
        assert self.log_dir is not None
        return self.log_dir.resolve() / _KEPT_STATE

    def _restart_variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What processes must know to be started again: where servers keep state, and that lost trainers come back."""
        found = {} if environment.get(_LOST) else {_LOST: "wait"}
        if self._keeps_state:
            found |= {
                _SNAPSHOTS: str(self._state_folder / "snapshots"),
                "FLAGS_rpc_server_log": str(self._state_folder / "log"),
                "FLAGS_rpc_server_log_sync": "0",  # if the machine crashes, this launcher is gone as well
            }
        return found

    def _will_restart(self, failed: Child) -> bool:
        """Plans the next life of a process that has failed; whether there is one."""
        now, lives, code = time.monotonic(), self._lives[failed.member], failed.code()
        assert code is not None
        pause = lives.fail(now, now - failed.began, code)
        if pause is None:
            return False
        failed.end()
        self._show_output(failed)
        text = (
            f"{failed.member} {describe_end(code)} after {now - failed.began:.0f} s; starting it again in {pause:g} s"
        )
        text += f" (restart {lives.used} of {lives.allowed})"
        self._screen.say(text)
        failed.note(f"[launch] {text}")
        if failed.output_open:
            self._selector.unregister(failed)
        failed.close()
        self._children.remove(failed)
        return True

    def _come_too_late(self) -> int | None:
        """The exit code of a trainer that is to be started again when all servers have ended, if there is one."""
        servers = [child for child in self._children if child.member.role == "server"]
        late = [member for member in self._waiting() if member.role == "trainer"]
        if not late or not servers or any(child.code() != 0 for child in servers):
            return None
        self._screen.say(f"{late[0]} is not started again: all servers have ended")
        return self._lives[late[0]].code

    def _restart_due(self) -> None:
        now = time.monotonic()
        for member, lives in self._lives.items():
            if lives.is_due(now):
                lives.due = None
                child = self._start_child(member, continues=True)
                self._children.append(child)
                self._selector.register(child, selectors.EVENT_READ, child)
                self._screen.say(f"started {member} again")

    def _waiting(self) -> list[Member]:
        """Those that are about to be started again."""
        return [member for member, lives in self._lives.items() if lives.due is not None]

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
        if self._keeps_state:
            shutil.rmtree(self._state_folder, ignore_errors=True)
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
