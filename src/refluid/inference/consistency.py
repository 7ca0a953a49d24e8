"""Comparing the outputs of a model in all its forms: eager, compiled, exported, as the training program, and with rows
from Redis."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from refluid.executor import Executor
from refluid.files.programs import read_program
from refluid.files.storage import at
from refluid.files.variables import is_persistable, load_variables
from refluid.inference import stablehlo
from refluid.inference.exported_sequences import sizes_of
from refluid.inference.models import InferenceModel
from refluid.inference.predictor import Predictor
from refluid.inference.samples import make_samples
from refluid.ir import Program
from refluid.lowering.folding import reads_and_writes
from refluid.scope import Scope
from refluid.tensors import LoDTensor, RemoteArray

_LOOKUPS = ("lookup_table", "lookup_table_v2")


@dataclass(frozen=True)
class Difference:
    """The difference of one form of a model from the compiled one, in one output.

    ``largest`` is the largest |a - b| / max(1, |b|) over all elements, infinite where shapes or sequences differ.
    """

    form: str
    output: str
    largest: float


@dataclass(frozen=True)
class Training:
    """The training program that a model was pruned from, and the scope with its parameters."""

    program: Program
    scope: Scope


def open_training(program_file: str | Path, parameters: str | Path | None, model: InferenceModel) -> Training:
    """Reads a training program.

    Args:
      parameters: a folder with a file per variable, or one file of all persistable variables; by default the model's.
    """
    whole = read_program(at(program_file))
    program = whole.clone(for_test=True)
    if parameters is None:
        return Training(program, model.scope)
    scope, path = Scope(), at(parameters)
    if path.is_dir():
        read = set(reads_and_writes(program.global_block().ops)[0])
        load_variables(scope, [v for v in program.list_vars() if is_persistable(v) and v.name in read], str(path))
    else:
        load_variables(scope, list(filter(is_persistable, whole.list_vars())), str(path.parent), path.name)
    return Training(program, scope)


def compare_forms(model: InferenceModel, feed: Mapping[str, Any]) -> tuple[list[Difference], str | None]:
    """How the eager and the exported form differ from the compiled one, and why there is no exported one, if so."""
    compiled = Predictor(model).run(feed)
    found = _differences("eager", model.fetches, Predictor(model, eager=True).run(feed), compiled)
    with tempfile.TemporaryDirectory() as folder:
        try:
            sequences = {name: astuple(sizes) for name, sizes in sizes_of(feed).items()}
            stablehlo.export(model, folder, sequences=sequences)
        except (ValueError, NotImplementedError, ImportError) as error:
            return found, str(error)
        exported = stablehlo.ExportedModel(folder).run(feed)
    return [*found, *_differences("exported", model.fetches, exported, compiled)], None


def compare_training(
    model: InferenceModel, training: Training, feed: Mapping[str, Any], seed: int = 0
) -> list[Difference]:
    """How the training program, unpruned, differs from the model, in outputs and in parameters that are not equal."""
    needed = _inputs_of(training.program)
    count = max(map(_count, feed.values()), default=1)
    others = make_samples(training.program, [name for name in needed if name not in feed], count, seed)
    names = [_name_in(training.program, model.program, name) for name in model.fetches]
    tensors = Executor().run(training.program, {**feed, **others}, names, scope=training.scope, return_numpy=False)
    found = _differences("training", model.fetches, tensors, Predictor(model).run(feed))
    for variable in model.parameters():
        held = training.scope.find_var(variable.name)
        if held is None or held.value is None:
            found.append(Difference("parameter", variable.name, float("inf")))
        elif isinstance(held.value, RemoteArray) or isinstance(model.scope.var(variable.name).value, RemoteArray):
            found += _row_difference(variable.name, held.value, model.scope.var(variable.name).value)
        elif not np.array_equal(held.value, model.scope.var(variable.name).value):
            distance = _distance(held.holder, model.scope.var(variable.name).holder)
            found.append(Difference("parameter", variable.name, distance))
    return found


@dataclass(frozen=True)
class Online:
    """A model with rows from Redis compared with the model.

    Attributes:
      differences: in outputs.
      tables: those that were read from Redis: their names, and the step of their snapshot.
      missing: ids that were looked up and have no rows there, by table.
      offline: tables that are not in Redis; their rows were the model's.
    """

    differences: list[Difference]
    tables: dict[str, int]
    missing: dict[str, list[int]]
    offline: list[str]


def compare_online(model: InferenceModel, url: str, feed: Mapping[str, Any]) -> Online:
    """How a model whose tables are in Redis, under the names that ``refluid table push`` gives them, differs.

    Raises:
      ValueError: no table of the model is there.
      OnlineError: Redis cannot be reached, or has rows of another width.
    """
    find_online = import_module("refluid.runtime.inference.online_rows").find_online
    block = model.program.global_block()
    names = sorted({name for op in block.ops if op.type in _LOOKUPS for name in op.input("W")})
    found = {name: find_online(block.var(name), url) for name in names}
    tables = {name: rows for name, rows in found.items() if rows is not None}
    if not tables:
        raise ValueError(f"Redis has no table of this model; it looks up {', '.join(names) or 'none'}")
    scope = Scope()
    for variable in model.parameters():
        held = model.scope.var(variable.name)
        if variable.name in tables:
            scope.hold_remotely(variable.name, tables[variable.name])
        elif isinstance(held.value, RemoteArray):
            scope.hold_remotely(variable.name, held.value)
        else:
            scope.own_var(variable.name).value = held.holder
    results = Predictor(replace(model, scope=scope)).run(feed)
    return Online(
        _differences("with rows from Redis", model.fetches, results, Predictor(model).run(feed)),
        {name: rows.form.step for name, rows in tables.items()},
        {name: sorted(rows.lacking) for name, rows in tables.items() if rows.lacking},
        [name for name in names if name not in tables],
    )


def pruned_inputs(model: InferenceModel, training: Training) -> list[str]:
    """What the training program is fed, and the model no longer needs."""
    return [name for name in _inputs_of(training.program) if name not in model.feeds]


def known_ids(model: InferenceModel) -> dict[str, np.ndarray]:
    """Some ids that tables with rows of any ids have, by name."""
    found: dict[str, np.ndarray] = {}
    for variable in model.parameters():
        value: Any = model.scope.var(variable.name).value
        if isinstance(value, RemoteArray) and value.any_ids:
            found[variable.name] = next(iter(value.ids()), np.empty(0, np.int64))  # pyright: ignore
    return found


def _inputs_of(program: Program) -> list[str]:
    block = program.global_block()
    return [n for n in reads_and_writes(block.ops)[0] if not (block.has_var(n) and block.var(n).persistable)]


def _count(value: Any) -> int:
    """Returns the number of samples in a fed value."""
    return len(value.lod()[0]) - 1 if isinstance(value, LoDTensor) and value.lod() else len(value)


def _row_difference(name: str, trained: Any, saved: Any) -> list[Difference]:
    """The largest difference between the rows of a table that has any ids in one of the two, or nothing."""
    ids = [part for each in (trained, saved) if isinstance(each, RemoteArray) for part in each.ids()]  # pyright: ignore
    ids = np.unique(np.concatenate([*ids, np.empty(0, np.int64)]))
    rows = []
    for each in (trained, saved):
        if isinstance(each, RemoteArray):
            rows.append(each.read_rows(ids))
        elif len(ids) and (ids[0] < 0 or ids[-1] >= len(each)):
            return [Difference("parameter", name, float("inf"))]
        else:
            rows.append(np.asarray(each)[ids])
    return [] if np.array_equal(*rows) else [Difference("parameter", name, _distance(*rows))]


def _name_in(training: Program, pruned: Program, name: str) -> str:
    """What a fetched variable is called in the training program: saving a model puts a scale by 1 behind it."""
    block = training.global_block()
    if not block.has_var(name):
        writers = [op for op in pruned.global_block().ops if name in op.output_arg_names and op.type == "scale"]
        if writers:
            name = writers[-1].input("X")[0]
    if not block.has_var(name):
        raise ValueError(f"the training program has no variable {name}, which the model returns")
    return name


def _differences(form: str, names: Sequence[str], values: Sequence[Any], base: Sequence[Any]) -> list[Difference]:
    return [Difference(form, n, _distance(a, b)) for n, a, b in zip(names, values, base, strict=True)]


def _distance(value: Any, base: Any) -> float:
    lods = [x.lod() if isinstance(x, LoDTensor) else [] for x in (value, base)]
    a, b = np.asarray(value), np.asarray(base)
    if a.shape != b.shape or lods[0] != lods[1]:
        return float("inf")
    a, b = a.astype("float64"), b.astype("float64")
    both = np.isnan(a) & np.isnan(b) | (a == b)
    with np.errstate(invalid="ignore"):
        far = np.where(both, 0.0, np.abs(a - b) / np.maximum(1, np.abs(b)))
    return float(np.where(np.isnan(far), np.inf, far).max(initial=0.0))
