"""``python -m paddle.distributed.launch train.py``: one process per device, for collective training.

It starts one process for each of ``--selected_gpus``, or ``--nproc_per_node`` processes, and sets their environment. A
process uses one CPU device, unless CPU_NUM says otherwise.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paddle.distributed.arguments import add_shared, each_name, print_configuration, run
from refluid.runtime.launch.environment import Member, Placement, split_endpoint
from refluid.runtime.launch.launcher import Launcher, script_command
from refluid.runtime.launch.ports import HeldPorts

_STARTED_PORT = 6070


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        "python -m paddle.distributed.launch", description="Starts a collective job: one process per device."
    )
    add_shared(parser)
    parser.add_argument("--use_paddlecloud", action="store_true", help="take nodes and ports from PADDLE_* variables")
    parser.add_argument("--started_port", type=int, help="a node's first port (by default a free one on one node)")
    parser.add_argument("--selected_gpus", help="the GPUs to use, such as 0,1: one process for each")
    parser.add_argument("--gpus", type=int, help="or how many of them, from 0 on")
    parser.add_argument("--nproc_per_node", type=int, help="how many processes on a node without GPUs (default 1)")
    parser.add_argument("--log_level", type=int, default=logging.INFO, help="accepted; the launcher has one level")
    parser.set_defaults(log_dir="mylog")
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    args = parser.parse_args(arguments)
    if args.training_script_args[:1] == ["--gpus"] and not Path(args.training_script).is_file():
        # Fluid's guide writes a word before the options: launch train.py --gpus 2 entry.py
        arguments.remove(args.training_script)
        args = parser.parse_args(arguments)
    return args


def launch(args: argparse.Namespace) -> int:
    """Runs a job and returns its exit code."""
    nodes, node, port = _place(args)
    gpus = each_name(args.selected_gpus) if args.selected_gpus else [str(gpu) for gpu in range(args.gpus or 0)]
    count = len(gpus) or args.nproc_per_node or 1
    ports = HeldPorts()
    if len(nodes) == 1 and port is None:
        trainers = ports.hold_any(count, node)
    else:
        first = port or _STARTED_PORT
        trainers = tuple(f"{host}:{first + number}" for host in nodes for number in range(count))
        ports.hold_given([trainer for trainer in trainers if split_endpoint(trainer)[0] == node])
    job = Placement((), trainers)
    members = job.members()[nodes.index(node) * count :][:count]
    command = script_command(args.training_script, args.training_script_args)
    log_dir = Path(args.log_dir) if args.log_dir else None
    return Launcher(job, command, _with_gpus(members, gpus), log_dir, ports=ports).run()


def _place(args: argparse.Namespace) -> tuple[list[str], str, int | None]:
    """All nodes, this node, and the first port."""
    nodes, node, port = each_name(args.cluster_node_ips), args.node_ip, args.started_port
    if args.use_paddlecloud:
        nodes = each_name(os.environ.get("PADDLE_TRAINERS", "")) or nodes
        node = os.environ.get("POD_IP", node)
        port = port or int(os.environ.get("PADDLE_PORT", "0")) or None
    if node not in nodes:
        raise ValueError(f"this node, {node}, is not among the nodes {', '.join(nodes)}")
    promised = int(os.environ.get("PADDLE_NUM_TRAINERS", len(nodes)))
    if promised != len(nodes):
        raise ValueError(
            f"PADDLE_NUM_TRAINERS says {promised} nodes, --cluster_node_ips names {len(nodes)} ({', '.join(nodes)})"
        )
    return nodes, node, port


def _with_gpus(members: list[Member], gpus: list[str]) -> list[Member]:
    """The processes with their devices, numbered from 0 among the visible ones as each process sees them."""
    visible = each_name(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    missing = [gpu for gpu in gpus if visible and gpu not in visible]
    if missing:
        raise ValueError(f"GPU {', '.join(missing)} is not among CUDA_VISIBLE_DEVICES {','.join(visible)}")
    places = [str(visible.index(gpu)) if visible else gpu for gpu in gpus]
    return [replace(member, gpus=place) for member, place in zip(members, places, strict=True)] if gpus else members


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command."""
    args = parse_args(arguments)
    if args.print_config:
        print_configuration(args)
    return run("launch", lambda: launch(args))


if __name__ == "__main__":
    sys.exit(main())
