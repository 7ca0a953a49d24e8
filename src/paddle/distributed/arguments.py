"""Options and messages that both launchers share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from refluid.runtime.launch.ports import LOOPBACK


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Adds the options and arguments of both launchers."""
    parser.add_argument("--cluster_node_ips", default=LOOPBACK, help="the nodes, such as 10.0.0.1,10.0.0.2")
    parser.add_argument("--node_ip", default=LOOPBACK, help="this node")
    parser.add_argument("--print_config", type=_truth, default=True, help="print the options first (default True)")
    parser.add_argument("--log_dir", help="the folder for one log per process")
    parser.add_argument("training_script", help="the script that every process runs")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="passed to the script")


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"expected True or False, got {text!r}")
    return text.lower() in ("true", "1")


def each_name(text: str) -> list[str]:
    """The names in a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def print_configuration(args: argparse.Namespace) -> None:
    """Prints the options as they were parsed."""
    print("-----------  Configuration Arguments -----------")
    for name, value in sorted(vars(args).items()):
        print(f"{name}: {value}")
    print("------------------------------------------------", flush=True)


def run(name: str, launch: Callable[[], int]) -> int:
    """Runs a launch and returns its exit code; 2 with a message if it cannot start."""
    try:
        return launch()
    except (OSError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
