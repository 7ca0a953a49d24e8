"""Jobs whose processes all run on this machine, on free ports."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from refluid.runtime.launch.environment import Placement, split_endpoint
from refluid.runtime.launch.ports import HeldPorts

LOOPBACK = "127.0.0.1"


def script_command(script: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a Python script with this interpreter."""
    if not Path(script).is_file():
        raise FileNotFoundError(f"script {script} does not exist")
    return [sys.executable, "-u", script, *arguments]


def free_job(servers: int, trainers: int, ports: HeldPorts) -> Placement:
    """The placement of a job on free loopback ports, which ``ports`` holds."""
    return Placement(ports.hold_same_port(servers) if servers else (), free_endpoints(trainers, ports))


def free_endpoints(count: int, ports: HeldPorts, host: str = LOOPBACK) -> tuple[str, ...]:
    """Endpoints at an address of this machine, with free ports."""
    return tuple(ports.hold(host) for _ in range(count))


def hold_given(endpoints: Sequence[str], ports: HeldPorts) -> None:
    """Holds the ports that a user has chosen, so that a port in use is reported here and not in the log of a server."""
    for endpoint in endpoints:
        host, port = split_endpoint(endpoint)
        try:
            ports.hold(host, int(port))
        except OSError as error:
            raise OSError(f"cannot listen on {endpoint}: {os.strerror(error.errno or 0)}") from error
