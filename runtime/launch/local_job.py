"""Jobs whose processes all run on this machine, on ports that are free."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from refluid.runtime.launch.environment import Placement, split_endpoint
from refluid.runtime.launch.ports import HeldPorts

LOOPBACK = "127.0.0.1"


def script_command(script: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a Python script as this interpreter would."""
    if not Path(script).is_file():
        raise FileNotFoundError(f"there is no script {script}")
    return [sys.executable, "-u", script, *arguments]


def free_job(servers: int, trainers: int, ports: HeldPorts) -> Placement:
    """A job of so many processes on free loopback ports, which ``ports`` holds."""
    return Placement(ports.hold_in_line(servers) if servers else (), free_endpoints(trainers, ports))


def free_endpoints(count: int, ports: HeldPorts, host: str = LOOPBACK) -> tuple[str, ...]:
    """Endpoints at an address of this machine, with free ports."""
    return tuple(ports.hold(host) for _ in range(count))


def hold_given(endpoints: Sequence[str], ports: HeldPorts) -> None:
    """Holds the ports a user has chosen; one that is in use is found here, and not in the log of a server."""
    for endpoint in endpoints:
        host, port = split_endpoint(endpoint)
        try:
            ports.hold(host, int(port))
        except OSError as error:
            raise OSError(f"no process here can listen on {endpoint}: {os.strerror(error.errno or 0)}") from error
