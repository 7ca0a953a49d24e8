"""Comparing the outputs of a model in all its forms: eager, compiled, exported, and as the training program."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
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
from refluid.tensors import LoDTensor


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
    block = training.program.global_block()
    needed = [n for n in reads_and_writes(block.ops)[0] if not (block.has_var(n) and block.var(n).persistable)]
    count = max(map(_count, feed.values()), default=1)
    others = make_samples(training.program, [name for name in needed if name not in feed], count, seed)
    names = [_name_in(training.program, model.program, name) for name in model.fetches]
    tensors = Executor().run(training.program, {**feed, **others}, names, scope=training.scope, return_numpy=False)
    found = _differences("training", model.fetches, tensors, Predictor(model).run(feed))
    for variable in model.parameters():
        held = training.scope.find_var(variable.name)
        if held is None or held.value is None:
            found.append(Difference("parameter", variable.name, float("inf")))
        elif not np.array_equal(held.value, model.scope.var(variable.name).value):
            distance = _distance(held.holder, model.scope.var(variable.name).holder)
            found.append(Difference("parameter", variable.name, distance))
    return found


def _count(value: Any) -> int:
    """Returns the number of samples in a fed value."""
    return len(value.lod()[0]) - 1 if isinstance(value, LoDTensor) and value.lod() else len(value)


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
