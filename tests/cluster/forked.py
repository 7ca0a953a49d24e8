"""Real processes that start in no time: forked off one that has imported everything and computed nothing yet.

JAX and gRPC must not have begun when the first one is forked, so this is for scripts, not for pytest's own process.
"""

import atexit
import ctypes
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path

from refluid import flags


class Processes:
    """Processes of a job by name, such as ("server", 0).

    Args:
      folder: for their logs, one for each start.
      settings: the flags of all.

    Attributes:
      running: process ids by name.
      ended: exit codes by name.
    """

    def __init__(self, folder, settings):
        self.folder, self.settings = Path(folder), settings
        self.running, self.ended = {}, {}
        self._logs = {}

    def start(self, name, action, **settings):
        """Starts a process that does ``action``, with more flags."""
        text = "".join(map(str, name))
        log = self.folder / f"{text}.{sum(each == name for each, _ in self._logs)}.log"
        self._logs[name, len(self._logs)] = log
        pid = os.fork()
        if pid == 0:
            _become(log, {**self.settings, **settings}, action)
        self.running[name] = pid
        self.ended.pop(name, None)
        return pid

    def kill(self, name):
        """Kills a process; False if it has ended before."""
        self.reap()
        if name not in self.running:
            return False
        os.kill(self.running[name], signal.SIGKILL)
        os.waitpid(self.running.pop(name), 0)
        return True

    def reap(self):
        """Notes which processes have ended."""
        for name, pid in list(self.running.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del self.running[name]
                self.ended[name] = os.waitstatus_to_exitcode(status)

    def wait(self, seconds, names=None):
        """Waits until all, or those with the names, have ended; False if they do not in time."""
        end = time.monotonic() + seconds
        while any(name in self.running for name in list(names or self.running)):
            if time.monotonic() > end:
                return False
            self.reap()
            time.sleep(0.01)
        return True

    def output(self, name):
        """The log of the last process of a name."""
        logs = [log for (each, _), log in self._logs.items() if each == name]
        return logs[-1].read_text(errors="replace")

    def end(self):
        """Kills what is left."""
        for name in list(self.running):
            self.kill(name)


def _become(log, settings, action):
    """Makes a forked process one of the job; it never returns."""
    code = 1
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(handle, stream)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # no process of a job outlives the one that watches it
        for name, value in settings.items():
            flags.write_flag(name, value)
        action()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - a process of its own
        traceback.print_exc()
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def free_ports(count):
    """Ports that no connection of this machine takes by itself, so that a server gets its own again."""
    found = []
    while len(found) < count:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def written(path, found):
    """Writes JSON to a file that is complete as soon as it is there."""
    Path(f"{path}.part").write_text(json.dumps(found))
    os.rename(f"{path}.part", path)


def usage(pid):
    """What a process takes: ``memory`` (resident, MB), ``peak`` of it, ``threads``, ``descriptors``; {} if it ends."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    if "VmRSS" not in status:
        return {}
    return {
        "memory": int(status["VmRSS"].split()[0]) / 1024,
        "peak": int(status["VmHWM"].split()[0]) / 1024,
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }
