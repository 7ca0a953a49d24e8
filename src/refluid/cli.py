"""The command line: ``refluid inspect``, ``refluid convert`` and ``refluid check``, for saved inference models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from refluid.files.storage import at
from refluid.inference import consistency, inspection, stablehlo
from refluid.inference.models import FORMS, MODEL, InferenceModel, open_model, save_model
from refluid.inference.samples import make_samples
from refluid.ir import Program

_ERRORS = (OSError, ValueError, TypeError, ImportError, NotImplementedError, RuntimeError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 0 when all is well, 1 when a check finds a difference, 2 when the command cannot be done."""
    chosen = _parser().parse_args(arguments)
    try:
        return chosen.run(chosen)
    except _ERRORS as error:
        print(f"refluid {chosen.command}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("refluid", description="Looks into, converts and checks saved inference models.")
    commands = parser.add_subparsers(dest="command", required=True)

    inspect = _command(commands, "inspect", _inspect, "shows feeds, fetches, operators and parameters")
    inspect.add_argument("--ops", action="store_true", help="list every operator in order")
    inspect.add_argument("--dot", metavar="FILE", help="write the graph for Graphviz")

    convert = _command(commands, "convert", _convert, "writes the model in another form")
    convert.add_argument("out", metavar="OUT", help="the folder to write")
    convert.add_argument("--to", required=True, choices=("stablehlo", *FORMS))
    convert.add_argument("--platforms", help="for stablehlo: such as cpu,cuda,tpu; by default the one here")
    convert.add_argument(
        "--shape", action="append", default=[], metavar="FEED=8,13", help="for stablehlo: a fixed shape of a feed"
    )

    check = _command(commands, "check", _check, "compares the numbers of the model's forms")
    check.add_argument("--data", metavar="FILE", help="an .npz file with an array for each feed; by default random")
    check.add_argument("--samples", type=int, default=8, help="how many random samples (default 8)")
    check.add_argument("--seed", type=int, default=0)
    check.add_argument("--tolerance", type=float, default=1e-5, help="the largest |a - b| / max(1, |b|) (default 1e-5)")
    check.add_argument("--program", metavar="FILE", help="the training program, to compare with: a ProgramDesc message")
    check.add_argument("--params", metavar="PATH", help="its parameters: a folder or a file; by default the model's")
    return parser


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=f"{name}: {text}.")
    command.set_defaults(run=run)
    command.add_argument("folder", metavar="DIR", help="a folder that fluid.io.save_inference_model wrote")
    command.add_argument("--model-filename", help=f"the program's file (default {MODEL})")
    command.add_argument("--params-filename", help="the file of combined parameters (by default it is looked for)")
    return command


def _open(chosen: argparse.Namespace) -> InferenceModel:
    if stablehlo.is_exported(chosen.folder):
        raise ValueError(f"{chosen.folder} holds an exported model; name the folder it was exported from")
    return open_model(chosen.folder, chosen.model_filename, chosen.params_filename)


def _inspect(chosen: argparse.Namespace) -> int:
    path = at(chosen.folder) / (chosen.model_filename or MODEL)
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}")
    program = Program.parse_from_string(path.read_bytes())
    print(f"model    {path}")
    print(inspection.describe(program))
    if chosen.ops:
        print(f"\n{inspection.list_operators(program)}")
    if chosen.dot:
        print("\nwrote", *inspection.draw(program, chosen.dot))
    return 0


def _convert(chosen: argparse.Namespace) -> int:
    model = _open(chosen)
    if chosen.to == "stablehlo":
        platforms = chosen.platforms.split(",") if chosen.platforms else None
        stablehlo.export(model, chosen.out, platforms, dict(map(_shape, chosen.shape)))
    else:
        save_model(model, chosen.out, chosen.to)
    print(f"wrote {chosen.out}: {', '.join(sorted(path.name for path in at(chosen.out).iterdir()))}")
    return 0


def _shape(text: str) -> tuple[str, list[int]]:
    name, _, dims = text.partition("=")
    try:
        return name, [int(dim) for dim in dims.split(",")]
    except ValueError as error:
        raise ValueError(f"--shape is written FEED=8,13, not {text}") from error


def _check(chosen: argparse.Namespace) -> int:
    model = _open(chosen)
    feed = _samples(model, chosen)
    differences, reason = consistency.compare_forms(model, feed)
    if chosen.program:
        training = consistency.open_training(chosen.program, chosen.params, model)
        differences += consistency.compare_training(model, training, feed, chosen.seed)
    rows = [
        (d.form, d.output, f"{d.largest:.3g}", "" if d.largest <= chosen.tolerance else "too far") for d in differences
    ]
    print(inspection.table(("compared", "output", "difference", ""), rows))
    if reason is not None:
        print(f"not compared: the exported form ({reason})")
    far = [d for d in differences if not d.largest <= chosen.tolerance]
    verdict = "the forms agree" if not far else f"{len(far)} of {len(differences)} differences are too large"
    print(f"{verdict} (tolerance {chosen.tolerance:g})")
    return 1 if far else 0


def _samples(model: InferenceModel, chosen: argparse.Namespace) -> dict[str, Any]:
    if chosen.data is None:
        return make_samples(model.program, model.feeds, chosen.samples, chosen.seed)
    with at(chosen.data).open("rb") as stream, np.load(stream) as arrays:
        missing = [name for name in model.feeds if name not in arrays]
        if missing:
            raise ValueError(f"{chosen.data} has no array {', '.join(missing)}")
        return {name: arrays[name] for name in model.feeds}


if __name__ == "__main__":
    sys.exit(main())
