"""The commands ``refluid inspect``, ``refluid convert`` and ``refluid check``, for saved inference models."""

from __future__ import annotations

import argparse
import re
from typing import Any

import numpy as np

from refluid.files.programs import MODEL, read_program
from refluid.files.storage import at
from refluid.files.writing import atomic_write
from refluid.inference import consistency, inspection, stablehlo
from refluid.inference.models import FORMS, InferenceModel, open_model, refuse_own_folder, save_model
from refluid.inference.samples import make_samples
from refluid.ir.drawing import graph_of
from refluid.ir.svg import to_svg
from refluid.tables import as_text, table
from refluid.tensors import LoDTensor


def _add_inspect(command: argparse.ArgumentParser) -> None:
    _add_model(command)
    command.add_argument("--ops", action="store_true", help="list every operator in order")
    command.add_argument("--picture", metavar="FILE.svg", help="draw the graph, for a browser")
    command.add_argument("--dot", metavar="FILE", help="write the graph for Graphviz")


def _add_convert(command: argparse.ArgumentParser) -> None:
    _add_model(command)
    command.add_argument("out", metavar="OUT", help="the folder to write")
    command.add_argument("--to", required=True, choices=("stablehlo", *FORMS))
    command.add_argument("--platforms", help="for stablehlo: such as cpu,cuda,tpu; default: the current one")
    command.add_argument(
        "--shape", action="append", default=[], metavar="FEED=8,13", help="for stablehlo: a fixed shape of a feed"
    )
    command.add_argument(
        "--sequences",
        action="append",
        default=[],
        metavar="FEED=8,256,64",
        help="for stablehlo: number of sequences of a feed, and the most rows in total and in the longest sequence",
    )


def _add_check(command: argparse.ArgumentParser) -> None:
    _add_model(command)
    command.add_argument(
        "--data",
        metavar="FILE",
        help="an .npz file with an array for each feed, and FEED.lengths for one of sequences; by default random",
    )
    command.add_argument("--samples", type=int, default=8, help="how many random samples (default 8)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument(
        "--tolerance", type=float, default=1e-5, help="the largest |a - b| / max(1, |b|) (default 1e-5)"
    )
    command.add_argument(
        "--program", metavar="FILE", help="the training program, to compare with: a ProgramDesc message"
    )
    command.add_argument("--params", metavar="PATH", help="its parameters: a folder or a file; by default the model's")
    command.add_argument(
        "--rows", metavar="redis://HOST", help="compare with the model whose tables are in Redis (refluid table push)"
    )


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", metavar="DIR", help="a folder that fluid.io.save_inference_model wrote")
    command.add_argument("--model-filename", help=f"the program's file (default {MODEL})")
    command.add_argument("--params-filename", help="the file of combined parameters (default: detected)")


def _open(chosen: argparse.Namespace) -> InferenceModel:
    if stablehlo.is_exported(chosen.folder):
        raise ValueError(f"{chosen.folder} is an exported model; pass the folder it was exported from")
    return open_model(chosen.folder, chosen.model_filename, chosen.params_filename)


def _inspect(chosen: argparse.Namespace) -> int:
    if stablehlo.is_exported(chosen.folder):
        print(f"model    {chosen.folder}, exported as StableHLO")
        print(stablehlo.describe(chosen.folder))
        return 0
    path = at(chosen.folder) / (chosen.model_filename or MODEL)
    program = read_program(path)
    print(f"model    {path}")
    print(inspection.describe(program))
    if chosen.ops:
        print(f"\n{inspection.list_operators(program)}")
    if chosen.picture:
        with atomic_write(chosen.picture) as stream:
            stream.write(to_svg(graph_of(program)).encode())
        print("\nwrote", chosen.picture)
    if chosen.dot:
        print("\nwrote", *graph_of(program).save(chosen.dot))
    return 0


def _convert(chosen: argparse.Namespace) -> int:
    refuse_own_folder(chosen.folder, chosen.out)
    model = _open(chosen)
    if chosen.to == "stablehlo":
        platforms = chosen.platforms.split(",") if chosen.platforms else None
        shapes = dict(_numbers("shape", "8,13", text) for text in chosen.shape)
        sequences = dict(_numbers("sequences", "8,256,64", text) for text in chosen.sequences)
        stablehlo.export(model, chosen.out, platforms, shapes, sequences)
    else:
        save_model(model, chosen.out, chosen.to)
    print(f"wrote {chosen.out}: {', '.join(sorted(path.name for path in at(chosen.out).iterdir()))}")
    return 0


def _numbers(option: str, example: str, text: str) -> tuple[str, list[int]]:
    name, _, numbers = text.partition("=")
    try:
        found = [int(number) for number in numbers.split(",")]
    except ValueError:
        found = []
    if not found or (option == "sequences" and len(found) != 3):
        raise ValueError(f"--{option} must look like FEED={example}, not {text}")
    return name, found


def _check(chosen: argparse.Namespace) -> int:
    model = _open(chosen)
    feed = _samples(model, chosen)
    differences, reason = consistency.compare_forms(model, feed)
    notes: list[str] = [] if reason is None else [f"not compared: the exported form ({reason})"]
    if chosen.program:
        training = consistency.open_training(chosen.program, chosen.params, model)
        differences += consistency.compare_training(model, training, feed, chosen.seed)
        notes += [f"pruned: the model no longer needs {name}" for name in consistency.pruned_inputs(model, training)]
    if chosen.rows:
        online = consistency.compare_online(model, chosen.rows, feed)
        differences += online.differences
        notes += _notes_of(online)
    rows = [
        (d.form, d.output, f"{d.largest:.3g}", "" if d.largest <= chosen.tolerance else "too far") for d in differences
    ]
    print(as_text(table(("compared", "output", "difference", ""), rows)))
    for note in notes:
        print(note)
    far = [d for d in differences if not d.largest <= chosen.tolerance]
    verdict = "the forms agree" if not far else f"{len(far)} of {len(differences)} differences are too large"
    print(f"{verdict} (tolerance {chosen.tolerance:g})")
    return 1 if far else 0


def _notes_of(online: consistency.Online) -> list[str]:
    found = [f"Redis: {name} of step {step}" for name, step in online.tables.items()]
    found += [f"not in Redis: {name}; its rows were the model's" for name in online.offline]
    for name, ids in online.missing.items():
        shown = ", ".join(map(str, ids[:10])) + (" ..." if len(ids) > 10 else "")
        found.append(f"missing: {len(ids)} ids of {name} have no rows in Redis, and are zeros there: {shown}")
    return found


def _samples(model: InferenceModel, chosen: argparse.Namespace) -> dict[str, Any]:
    if chosen.data is None:
        known = consistency.known_ids(model)
        return make_samples(model.program, model.feeds, chosen.samples, chosen.seed, known)
    with at(chosen.data).open("rb") as stream, np.load(stream) as arrays:
        missing = [name for name in model.feeds if name not in arrays]
        if missing:
            raise ValueError(f"{chosen.data} has no array {', '.join(missing)}")
        return {name: _fed(name, arrays) for name in model.feeds}


def _fed(name: str, arrays: Any) -> Any:
    """Reads an array, or sequences if the file has their lengths: FEED.lengths, or FEED.lengths.0 and so on."""
    lengths = re.compile(rf"{re.escape(name)}\.lengths(\.\d+)?")
    levels = [arrays[key].tolist() for key in sorted(arrays) if lengths.fullmatch(key)]
    if not levels:
        return arrays[name]
    tensor = LoDTensor(arrays[name])
    tensor.set_recursive_sequence_lengths(levels)
    return tensor


COMMANDS = {"inspect": (_add_inspect, _inspect), "convert": (_add_convert, _convert), "check": (_add_check, _check)}
