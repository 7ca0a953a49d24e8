"""The command line ``refluid``: its commands and their modules, which are imported when a command is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from refluid import __version__

_MODELS, _JOBS = "refluid.inference.commands", "refluid.runtime.launch.commands"
_TABLES = "refluid.runtime.tables.files.commands"
_COMMANDS = {
    "inspect": (_MODELS, "shows feeds, fetches, operators and parameters of a saved model"),
    "convert": (_MODELS, "writes a saved model in another form"),
    "check": (_MODELS, "compares the numbers of a saved model's forms"),
    "launch": (_JOBS, "runs a script as a distributed job on this machine"),
    "run": (_JOBS, "runs a script as one process of a collective job that srun or mpirun has started"),
    "status": (_JOBS, "shows what parameter servers are doing"),
    "doctor": (_JOBS, "says why a job with parameter servers does not get on, and what to do"),
    "certificates": (_JOBS, "makes the TLS certificates of a distributed job"),
    "table": (_TABLES, "shows, exports, merges, compares and publishes tables that parameter servers have saved"),
}
_ERRORS = (OSError, ValueError, TypeError, ImportError, NotImplementedError, RuntimeError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns 0 on success, 1 if a check finds a difference, 2 if the command cannot be carried out."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    name = arguments[0] if arguments and arguments[0] in _COMMANDS else _named(arguments)
    module, text = _COMMANDS[name]
    add_arguments, run = import_module(module).COMMANDS[name]
    parser = argparse.ArgumentParser(f"refluid {name}", description=f"{name}: {text}.")
    add_arguments(parser)
    chosen = parser.parse_args(arguments[1:])
    try:
        return run(chosen)
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _ERRORS as error:
        print(f"refluid {name}: {error}", file=sys.stderr)
        return 2


def _named(arguments: Sequence[str]) -> str:
    """The command in a line that does not begin with one; prints help and exits if there is none."""
    parser = argparse.ArgumentParser("refluid", description="Saved Fluid models, and distributed jobs.")
    parser.add_argument("--version", action="version", version=f"refluid {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in _COMMANDS.items():
        commands.add_parser(name, help=text)
    if not arguments:
        parser.print_help(sys.stderr)
        parser.exit(2)
    return parser.parse_args(arguments).command


if __name__ == "__main__":
    sys.exit(main())
