"""Whole jobs on this machine, for tests: real processes, real sockets, and nothing left behind."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).parent / "train.py"
TIMEOUT = 180.0


def free_endpoints(count):
    """Endpoints that are free."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    endpoints = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return endpoints


class Process:
    """A process of a job, with its output in a file."""

    def __init__(self, arguments, log, python=sys.executable, **env):
        self.log = Path(log)
        with self.log.open("wb") as file:
            self.popen = subprocess.Popen(
                [python, *map(str, arguments)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            )

    @property
    def output(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, text):
        """Returns when the process has printed ``text``."""
        wait_until(lambda: text in self.output or self.popen.poll() is not None, lambda: self.output)
        assert text in self.output, self.output

    def finish(self, code=0):
        """Waits for the end of the process, which must have gone well."""
        try:
            found = self.popen.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise AssertionError(f"{self.log.name} did not end:\n{self.output}") from None
        assert found == code, f"{self.log.name} ended with {found}:\n{self.output}"

    def kill(self):
        self.popen.kill()
        self.popen.wait()


def wait_until(condition, describe=lambda: ""):
    """Waits for a condition, not for seconds."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, f"the condition never held: {describe()}"
        time.sleep(0.02)


class Jobs:
    """Starts processes in a folder, and ends them with the test."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.processes = []

    def start(self, name, *arguments, **env):
        # Processes and cases share what was compiled, however quickly.
        env = {"REFLUID_CACHE_DIR": str(self.folder / "xla"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", **env}
        process = Process(arguments, self.folder / f"{name}.log", **env)
        self.processes.append(process)
        return process

    def end(self):
        for process in self.processes:
            process.kill()

    def train(self, cases, servers=2, trainers=2, **env):
        """Runs cases as distributed jobs; returns what each trainer has seen, by case."""
        cases = [{"endpoints": free_endpoints(case.get("servers", servers)), **case} for case in cases]
        path = self.folder / "cases.json"
        path.write_text(json.dumps(cases))
        count = max(len(case["endpoints"]) for case in cases)
        started = [self._role("server", i, path, env) for i in range(count)]
        started += [self._role("trainer", i, path, env) for i in range(trainers)]
        self.finish(started)
        return [self._results(i, range(trainers), "trainer") for i in range(len(cases))]

    def roles(self, case, servers=2, **env):
        """Starts the servers of a job; returns them and a function that starts trainers, which may be given a name."""
        path = self.folder / "case.json"
        path.write_text(json.dumps([{"endpoints": free_endpoints(servers), **case}]))

        def trainer(number, name=None):
            name = name or f"trainer{number}"
            return self.start(name, SCRIPT, "trainer", number, path, self.folder / f"{name}.npz", **env)

        return [self._role("server", number, path, env) for number in range(servers)], trainer

    def lasting(self, case, count=2, **env):
        """Functions that start servers and trainers of a job by number, also again under a name, with more env."""
        path = self.folder / "case.json"
        path.write_text(json.dumps([{"endpoints": free_endpoints(count), **case}]))

        def starter(role):
            def start(number, name=None, **more):
                name = name or f"{role}{number}"
                return self.start(name, SCRIPT, role, number, path, self.folder / f"{name}.npz", **env, **more)

            return start

        return starter("server"), starter("trainer")

    @staticmethod
    def finish(processes):
        """Waits until all have ended well; the first that did not is shown."""
        wait_until(
            lambda: all(p.popen.poll() is not None for p in processes) or any(p.popen.poll() for p in processes),
            lambda: "\n".join(f"{p.log.name}:\n{p.output}" for p in processes if p.popen.poll() is None),
        )
        failed = [p for p in processes if p.popen.poll()]
        for process in failed or processes:
            process.finish()

    def train_locally(self, cases):
        """The same cases in one process, on whole batches."""
        path = self.folder / "local.json"
        path.write_text(json.dumps(cases))
        self._role("local", 0, path, {}).finish()
        return [self._results(i, [0], "local")[0] for i in range(len(cases))]

    def _role(self, role, number, path, env):
        name = f"{role}{number}"
        return self.start(name, SCRIPT, role, number, path, self.folder / f"{name}.npz", **env)

    def _results(self, case, numbers, role):
        found = []
        for number in numbers:
            with np.load(self.folder / f"{role}{number}.npz") as file:
                prefix = f"{case}/"
                found.append({n.removeprefix(prefix): file[n] for n in file.files if n.startswith(prefix)})
        return found
