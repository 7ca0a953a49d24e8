"""Inference models as folders: a program in ``__model__``, and its parameters in one of three forms.

``separate``: one file per parameter, in Fluid's format. ``combined``: one file with all of them, in Fluid's format.
``safetensors``: one file any framework reads. Opening finds out which form it is; saving writes the one asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refluid.errors import FeedError
from refluid.files import safetensors
from refluid.files.programs import MODEL, read_program
from refluid.files.storage import AnyPath, at
from refluid.files.variables import feeds_and_fetches, is_persistable, load_variables, save_variables
from refluid.files.writing import write_together, writer_of
from refluid.ir import Program, Variable
from refluid.scope import Scope

COMBINED = "__params__"
SAFETENSORS = "parameters.safetensors"
FORMS = ("separate", "combined", "safetensors")


@dataclass(frozen=True)
class InferenceModel:
    """A program that computes fetches from feeds, and the scope with its parameters."""

    program: Program
    feeds: list[str]
    fetches: list[str]
    scope: Scope

    def parameters(self) -> list[Variable]:
        """Returns the variables that are loaded from files, sorted by name."""
        return sorted(filter(is_persistable, self.program.list_vars()), key=lambda variable: variable.name)


def open_model(
    path: str | AnyPath, model_filename: str | None = None, params_filename: str | None = None
) -> InferenceModel:
    """Reads an inference model that Fluid or refluid saved.

    Args:
      path: the folder.
      model_filename: by default ``__model__``.
      params_filename: the file of combined parameters; by default it is looked for.

    Raises:
      FileNotFoundError: the model file or a parameter is missing.
      ValueError: the files are not those of a model.
    """
    folder, scope = at(path), Scope()
    file = folder / (model_filename or MODEL)
    program = read_program(file)
    feeds, fetches = feeds_and_fetches(program)
    model = InferenceModel(program, feeds, fetches, scope)
    variables = model.parameters()
    if params_filename is None:
        params_filename = _find_parameters(folder, file.name, variables)
    if params_filename is not None and params_filename.endswith(".safetensors"):
        safetensors.load_variables(scope, variables, folder / params_filename)
    elif variables:
        load_variables(scope, variables, str(folder), params_filename)
    return model


def refuse_own_folder(source: str | AnyPath, out: str | AnyPath) -> None:
    """Raises ValueError if ``out`` is the folder of the model that is read: its files would be overwritten or mixed."""
    one, other = (os.path.realpath(path) if isinstance(path, Path) else str(path) for path in (at(source), at(out)))
    if one == other:
        raise ValueError(f"{out} is the model's own folder; choose another one to write")


def save_model(model: InferenceModel, folder: str | Path, form: str) -> None:
    """Writes a model whole or not at all, with its parameters in one of the `FORMS`."""
    if form not in FORMS:
        raise ValueError(f"a model is saved {', '.join(FORMS)}, not {form!r}")
    program = {MODEL: model.program.desc.serialize_to_string()}
    if form == "safetensors":
        holders = {v.name: model.scope.var(v.name).holder for v in model.parameters()}
        files = {SAFETENSORS: safetensors.to_bytes(holders), **program}
        write_together(folder, {name: writer_of(content) for name, content in files.items()})
    else:
        filename = COMBINED if form == "combined" else None
        save_variables(model.scope, model.parameters(), str(folder), filename, beside=program)


def arguments_by_name(names: Sequence[str], values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments in order and by name, all by name; raises FeedError unless each has exactly one value."""
    if len(values) > len(names):
        raise TypeError(f"the model takes {len(names)} feeds ({', '.join(names)}), but {len(values)} were given")
    feed = dict(zip(names, values, strict=False))
    for name, value in named.items():
        if name in feed or name not in names:
            problem = "it is given twice" if name in feed else "the model has no such feed"
            raise FeedError(name, problem, f"its feeds are {', '.join(names)}")
        feed[name] = value
    for name in names:
        if name not in feed:
            raise FeedError(name, "the model needs it", f"its feeds are {', '.join(names)}")
    return feed


def _find_parameters(folder: AnyPath, model_file: str, variables: list[Variable]) -> str | None:
    """The file that holds all parameters, or None where each has its own."""
    missing = [v.name for v in variables if not (folder / v.name).is_file()]
    if not missing:
        return None
    if (folder / SAFETENSORS).is_file():
        return SAFETENSORS
    others = [path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    others = [name for name in others if name != model_file]
    if len(others) == 1:
        return others[0]
    shown = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
    raise FileNotFoundError(
        f"{folder} has no file for {len(missing)} of {len(variables)} parameters: {shown}\n"
        "  hint        if one file holds all of them, name it as params_filename"
    )
