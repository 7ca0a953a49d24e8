"""Real processes that join one group of JAX devices on this machine, and what the others say when one is gone."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from refluid.runtime.launch.ports import HeldPorts

SCRIPT = Path(__file__).parents[2] / "cluster/ranks.py"


@pytest.fixture
def start():
    """Starts a process for each rank; returns the exit code and the output of each when all have ended."""
    started = []

    def start(*actions, endpoints=None, devices=1, timeout=60, **variables):
        with_ports = HeldPorts()
        endpoints = endpoints or [",".join(with_ports.hold_any(2))] * 2
        environment = {**os.environ, "CPU_NUM": str(devices), "XLA_FLAGS": "", **variables}
        for rank, each in enumerate(endpoints):
            command = [sys.executable, str(SCRIPT), str(rank), each, *actions]
            pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            started.append(subprocess.Popen(command, env=environment, **pipe))
        found = [process.communicate(timeout=timeout)[0] for process in started]
        with_ports.close()
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


def test_a_rank_that_hangs_is_named_with_the_line_it_is_at(start):
    codes, outputs = start("stay1", REFLUID_COLLECTIVE_TIMEOUT="2")
    assert codes == [1, 1]
    for (message,) in errors(outputs):
        assert re.match(
            r"rank 1 at .* has not reached step 2 for \d+ s; it does nothing, at .*ranks.py:\d+ in main", message
        )


def test_an_exception_reaches_the_other_ranks(start):
    codes, outputs = start("raise0")
    assert codes == [1, 1]
    assert re.match(r"rank 0 at .* has failed: ValueError: bad line 3", errors(outputs)[1][0])


def test_other_endpoints_are_an_error_on_both_sides(start):
    ports = HeldPorts()
    first, second, third = ports.hold_any(3)
    codes, outputs = start(endpoints=[f"{first},{second}", f"{first},{third}"])
    ports.close()
    assert codes == [1, 1]
    for (message,) in errors(outputs):
        assert message == f"rank 1 at {third} has the endpoints {first},{third}, rank 0 has {first},{second}"


def test_a_port_in_use_and_an_address_of_another_machine_are_errors_at_once(start):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        codes, outputs = start(endpoints=[f"{taken},127.0.0.1:1"])
        assert codes == [1] and errors(outputs) == [[f"rank 0 at {taken} cannot listen: Address already in use"]]
    codes, outputs = start(endpoints=["192.0.2.1:6170,127.0.0.1:1"])
    assert "cannot listen: Cannot assign requested address; is it an address of this machine?" in outputs[-1]


def test_a_missing_rank_is_named(start):
    ports = HeldPorts()
    endpoints = ",".join(ports.hold_any(2))
    codes, outputs = start(endpoints=[endpoints], FLAGS_rpc_deadline="1000")
    ports.close()
    assert codes == [1] and "rank 1 at" in outputs[0]
    assert "has not joined within 1 s: it was not started, or cannot reach rank 0 at" in outputs[0]
