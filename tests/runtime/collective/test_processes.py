"""Real processes that join one group of JAX devices on this machine, and what the others say when one is gone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refluid.runtime.launch.ports import HeldPorts

SCRIPT = Path(__file__).parents[2] / "cluster/ranks.py"


@pytest.fixture
def ports():
    held = HeldPorts()
    yield held
    held.close()


@pytest.fixture
def start(ports):
    """Starts a process for each rank; returns the exit code and the output of each when all have ended."""
    started = []

    def start(*actions, devices=1, timeout=60):
        endpoints = ",".join(ports.hold_any(2))
        environment = {**os.environ, "CPU_NUM": str(devices), "JAX_NUM_CPU_DEVICES": "1", "XLA_FLAGS": ""}
        for rank in range(2):
            command = [sys.executable, str(SCRIPT), str(rank), endpoints, *actions]
            pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            started.append(subprocess.Popen(command, env=environment, **pipe))
        found = [started[0].communicate(timeout=timeout)[0]]
        if "stop1" in actions:  # it cannot end by itself
            started[1].kill()
        found.append(started[1].communicate(timeout=timeout)[0])
        return [process.returncode for process in started], found

    yield start
    for process in started:
        process.kill()
        process.communicate()


def errors(outputs):
    """The last RankError of each rank that has raised one."""
    return [re.findall(r"RankError: (.*)", output)[-1:] for output in outputs]


def test_two_processes_of_two_devices_join_leave_and_join_again_with_jax_in_use(start):
    codes, outputs = start("late", "again", devices=2)
    assert codes == [0, 0], outputs
    for output in outputs:
        lines = [line for line in output.splitlines() if line.startswith(("sum", "early", "alone"))]
        assert lines == ["sum 4.0 devices 4", "early 4.0", "alone 2 3.0", "sum 4.0"]


@pytest.mark.parametrize("gone", [0, 1])
def test_a_killed_rank_is_named_by_the_other(start, gone):
    codes, outputs = start(f"kill{gone}")
    assert (codes[gone], codes[1 - gone]) == (-9, 1)
    (message,) = errors(outputs)[1 - gone]
    assert re.match(rf"rank {gone} at 127\.0\.0\.1:\d+ has ended without leaving: it crashed or was killed", message)


def test_a_rank_that_brings_another_program_is_named_with_the_difference(start):
    codes, outputs = start("differ1")
    assert codes == [1, 1]
    for output in outputs:
        assert re.search(r"RankError: rank 1 at .* brings another program\n  there +sub\n  on rank 0 +add", output)


@pytest.mark.parametrize("how", ["sleep1", "loop1"])
def test_a_rank_that_hangs_is_named_with_the_line_it_is_at(start, how):
    codes, outputs = start("impatient", how)
    assert codes == [1, 1]
    for (message,) in errors(outputs):
        assert re.match(
            r"rank 1 at .* has not reached step 2 for \d+ s, without a sign of work, at .*ranks.py:\d+ in main", message
        )


def test_a_rank_that_is_stopped_is_named(start):
    codes, outputs = start("impatient", "stop1")
    assert codes == [1, -9]
    (message,) = errors(outputs)[0]
    assert re.match(r"rank 1 at .* has been silent for \d+ s: it or its network has stopped", message)
