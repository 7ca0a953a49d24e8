"""The commands ``refluid launch``, ``run``, ``status`` and ``doctor``, for distributed jobs."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path

from refluid.runtime.launch.certificates import add_certificates, write_certificates
from refluid.runtime.launch.cluster import membership
from refluid.runtime.launch.environment import Member, Placement, split_endpoint
from refluid.runtime.launch.launcher import Launcher, script_command
from refluid.runtime.launch.ports import HeldPorts

_SERVERS = "PADDLE_PSERVERS_IP_PORT_LIST"


def _add_launch(command: argparse.ArgumentParser) -> None:
    command.add_argument("--servers", type=_count, default=2, metavar="N", help="parameter servers (default 2)")
    command.add_argument("--trainers", type=_count, default=2, metavar="N", help="trainers (default 2)")
    command.add_argument(
        "--role", choices=["trainer"], help="start trainers only, and add them to a job that runs; see --endpoints"
    )
    command.add_argument("--endpoints", metavar="ENDPOINTS", help=f"with --role: the servers; by default {_SERVERS}")
    command.add_argument(
        "--first", type=_count, metavar="ID", help="with --role: the first trainer's id; by default the next one"
    )
    command.add_argument("--log_dir", "--log-dir", default="logs", help="the folder for one log per process (logs)")
    command.add_argument("--quiet", action="store_true", help="write the processes' lines to their logs only")
    command.add_argument(
        "--grace", type=float, default=10.0, metavar="SECONDS", help="how long processes have to stop (default 10)"
    )
    command.add_argument(
        "--restarts", type=_count, default=0, metavar="N", help="start a process that fails again, N times in a row (0)"
    )
    command.add_argument(
        "--metrics_port", "--metrics-port", type=int, metavar="PORT", help="/metrics from this port on; 0: free ports"
    )
    command.add_argument("script", help="the script that every process runs")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to the script")


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a number of processes, got {text!r}")
    return int(text)


def _launch(chosen: argparse.Namespace) -> int:
    if not chosen.trainers:
        raise ValueError("a job needs at least one trainer")
    ports = HeldPorts()
    placement, members = _place(chosen, ports)
    return Launcher(
        placement,
        script_command(chosen.script, chosen.arguments),
        members=members,
        log_dir=Path(chosen.log_dir),
        quiet=chosen.quiet,
        grace=chosen.grace,
        metrics_port=chosen.metrics_port,
        ports=ports,
        restarts=chosen.restarts,
    ).run()


def _place(chosen: argparse.Namespace, ports: HeldPorts) -> tuple[Placement, list[Member]]:
    """The whole job, and the processes of it that are started here."""
    if chosen.role is None:
        if chosen.endpoints or chosen.first is not None:
            raise ValueError("--endpoints and --first are for --role trainer, which adds trainers to a job that runs")
        servers = ports.hold_same_port(chosen.servers) if chosen.servers else ()
        placement = Placement(servers, ports.hold_any(chosen.trainers))
        return placement, placement.members()
    servers = _endpoints(chosen.endpoints or "")
    first = chosen.first
    if first is None:
        first = import_module("refluid.runtime.observe.status").next_trainer(servers)
    placement = Placement(tuple(servers), ports.hold_any(first + chosen.trainers))
    added = [each for each in placement.members() if each.role == "trainer" and each.index >= first]
    return placement, added


def _endpoints(text: str) -> list[str]:
    """Servers that are named, or those of the environment."""
    endpoints = [endpoint.strip() for endpoint in (text or os.environ.get(_SERVERS, "")).split(",") if endpoint.strip()]
    if not endpoints:
        raise ValueError(f"no servers given: name them, such as 127.0.0.1:6174, or set {_SERVERS}")
    for endpoint in endpoints:
        split_endpoint(endpoint)
    return endpoints


def _add_endpoints(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "endpoints",
        nargs="*",
        metavar="ENDPOINTS",
        help=f"the servers, such as 10.0.0.1:6174,10.0.0.2:6174; by default those of {_SERVERS}",
    )


def _add_status(command: argparse.ArgumentParser) -> None:
    _add_endpoints(command)
    command.add_argument("--once", action="store_true", help="print once; exit code 1 if a server does not reply")
    command.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between updates (default 1)")
    command.add_argument("--json", action="store_true", help="print lines of JSON")


def _status(chosen: argparse.Namespace) -> int:
    endpoints = _endpoints(",".join(chosen.endpoints))
    status = import_module("refluid.runtime.observe.status")  # and gRPC with it
    if chosen.once:
        return status.show_once(endpoints, as_json=chosen.json)
    return status.watch(endpoints, as_json=chosen.json, interval=chosen.interval)


def _add_doctor(command: argparse.ArgumentParser) -> None:
    _add_endpoints(command)
    command.add_argument("--json", action="store_true", help="print JSON")


def _doctor(chosen: argparse.Namespace) -> int:
    endpoints = _endpoints(",".join(chosen.endpoints))
    return import_module("refluid.runtime.observe.doctor").consult(endpoints, as_json=chosen.json)


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("script", help="the script; it finds its place in PADDLE_TRAINER_ID and other variables")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to the script")


def _run(chosen: argparse.Namespace) -> int:
    """Becomes the script, with the variables of a collective job that srun or mpirun has started."""
    command = script_command(chosen.script, chosen.arguments)
    found = membership()
    if found is None:
        raise ValueError("nothing says which process of which job this is; start it by srun or mpirun, as in srun -n 4")
    os.execve(command[0], command, {"CPU_NUM": "1", **os.environ, **found.variables()})


COMMANDS = {
    "launch": (_add_launch, _launch),
    "run": (_add_run, _run),
    "status": (_add_status, _status),
    "doctor": (_add_doctor, _doctor),
    "certificates": (add_certificates, write_certificates),
}
