"""``python -m paddle.distributed.launch_ps --server_num 2 --worker_num 2 train.py``: a parameter-server job.

Without ``--start_port`` or ``--endpoints`` it uses free ports. With several ``--cluster_node_ips`` the servers and
workers are spread over the nodes, and the launcher on each node, identified by ``--node_ip``, starts the node's own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle.distributed.arguments import add_shared, each_name, print_configuration, run
from refluid.runtime.launch.environment import Placement, split_endpoint, spread
from refluid.runtime.launch.launcher import Launcher, script_command
from refluid.runtime.launch.ports import LOOPBACK, HeldPorts

_START_PORT = 6170
_TRAINER_PORTS = 1000  # added to the servers' ports: with several nodes, trainers need ports that all nodes know


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        "python -m paddle.distributed.launch_ps", description="Starts a job with parameter servers on this machine."
    )
    add_shared(parser)
    parser.add_argument("--start_port", type=int, help="the first server's port (by default a free one)")
    parser.add_argument("--endpoints", default="", help="the servers' endpoints, such as 10.0.0.1:6170,10.0.0.2:6170")
    parser.add_argument("--worker_num", type=int, default=2, help="how many trainers (default 2)")
    parser.add_argument("--server_num", type=int, default=2, help="how many servers (default 2)")
    parser.add_argument(
        "--restarts", type=int, default=0, help="start a process that fails again, so often in a row (0)"
    )
    parser.set_defaults(log_dir="logs")
    return parser.parse_args(arguments)


def launch(args: argparse.Namespace) -> int:
    """Runs a job and returns its exit code."""
    nodes = each_name(args.cluster_node_ips)
    if args.node_ip not in nodes:
        raise ValueError(f"--node_ip {args.node_ip} is not one of --cluster_node_ips {args.cluster_node_ips}")
    ports = HeldPorts()
    servers, trainers = _endpoints(args, nodes, ports)
    job = Placement(servers, trainers)
    members = [m for m in job.members() if len(nodes) == 1 or split_endpoint(m.endpoint)[0] == args.node_ip]
    command = script_command(args.training_script, args.training_script_args)
    log_dir = Path(args.log_dir) if args.log_dir else None
    return Launcher(job, command, members, log_dir, ports=ports, restarts=args.restarts).run()


def _endpoints(args: argparse.Namespace, nodes: list[str], ports: HeldPorts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    here = [args.node_ip] if len(nodes) > 1 else None
    if args.endpoints:
        servers = tuple(each_name(args.endpoints))
    elif args.start_port or len(nodes) > 1:
        servers = spread(args.server_num, nodes, args.start_port or _START_PORT)
    else:
        servers = ports.hold_same_port(args.server_num)
        return servers, ports.hold_any(args.worker_num)
    ports.hold_given([server for server in servers if here is None or split_endpoint(server)[0] in here])
    if here is None and nodes == [LOOPBACK]:
        return servers, ports.hold_any(args.worker_num)
    return servers, spread(args.worker_num, nodes, (args.start_port or _START_PORT) + _TRAINER_PORTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = parse_args(arguments)
    if args.print_config:
        print_configuration(args)
    return run("launch_ps", lambda: launch(args))


if __name__ == "__main__":
    sys.exit(main())
