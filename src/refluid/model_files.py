"""Saving and loading the variables of a program, and inference models, in Fluid's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from refluid.errors import UninitializedError
from refluid.ir import Operator, Program, Variable, VarType, name_of
from refluid.scope import Scope
from refluid.tensor_files import (
    TensorFileError,
    atomic_write,
    read_lod_tensor,
    read_selected_rows,
    write_lod_tensor,
    write_selected_rows,
)
from refluid.tensors import SelectedRowsTensor

_NOT_SAVED = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER, VarType.RAW, VarType.STEP_SCOPES)


def is_persistable(variable: Variable) -> bool:
    """Whether a variable belongs into a checkpoint."""
    return variable.persistable and variable.type not in _NOT_SAVED


def save_variables(scope: Scope, variables: Sequence[Variable], folder: str, filename: str | None = None) -> None:
    """Writes one file per variable, or all into ``filename``, sorted by name."""
    for variable in variables:
        held = scope.find_var(variable.name)
        if held is None or held.value is None:
            raise UninitializedError(variable.name, f"saving to {folder}", "run the startup program first")
    if filename is None:
        for variable in variables:
            with atomic_write(Path(folder) / variable.name) as stream:
                _write(stream, scope.var(variable.name).holder)
        return
    with atomic_write(Path(folder) / filename) as stream:
        for variable in sorted(variables, key=lambda v: v.name):
            _write(stream, scope.var(variable.name).holder)


def _write(stream: BinaryIO, holder: Any) -> None:
    if isinstance(holder, SelectedRowsTensor):
        write_selected_rows(stream, holder.rows(), holder.height(), np.asarray(holder.get_tensor().value))
    else:
        write_lod_tensor(stream, np.asarray(holder.value), holder.lod())


def load_variables(scope: Scope, variables: Sequence[Variable], folder: str, filename: str | None = None) -> None:
    """Reads what `save_variables` wrote; a variable keeps its shape and dtype."""
    loaded = {}
    if filename is None:
        for variable in variables:
            path = Path(folder) / variable.name
            if not path.is_file():
                raise FileNotFoundError(f"variable {variable.name}: there is no file {path}")
            with path.open("rb") as stream:
                loaded[variable.name] = _read(stream, variable, path)
                if stream.read(1):
                    raise TensorFileError(f"variable {variable.name}: {path} holds more than one tensor")
    else:
        path = Path(folder) / filename
        with path.open("rb") as stream:
            for variable in sorted(variables, key=lambda v: v.name):
                loaded[variable.name] = _read(stream, variable, path)
            if stream.read(1):
                raise TensorFileError(f"{path} holds more variables than the {len(variables)} that were asked for")
    for name, holder in loaded.items():  # all or nothing: a bad file leaves the scope as it was
        variable = scope.var(name)
        if variable.holder is not None and type(variable.holder) is type(holder) and not _is_rows(holder):
            variable.holder.value, variable.holder._lod = holder.value, holder._lod
        else:
            variable.holder = holder


def _is_rows(holder: Any) -> bool:
    return isinstance(holder, SelectedRowsTensor)


def _read(stream: BinaryIO, variable: Variable, path: Path) -> Any:
    try:
        if variable.type == VarType.SELECTED_ROWS:
            return read_selected_rows(stream)
        tensor = read_lod_tensor(stream)
    except TensorFileError as error:
        raise TensorFileError(f"variable {variable.name}: {path}: {error}") from error
    fits = all(want in (-1, have) for have, want in zip(tensor.shape(), variable.shape, strict=False))
    if variable.shape and (len(tensor.shape()) != len(variable.shape) or not fits):
        raise ValueError(
            f"variable {variable.name} has shape {list(variable.shape)}, but {path} holds {tensor.shape()}; "
            "the model in the file is another one"
        )
    return tensor


def inference_program(program: Program, feeds: Sequence[str], targets: Sequence[Any]) -> Program:
    """The part of a program that computes ``targets`` from ``feeds``, for inference, with feed and fetch ops."""
    unknown = [name for name in feeds if not program.global_block().has_var(name)]
    if unknown:
        raise ValueError(f"feeded_var_names: the program has no variable {', '.join(unknown)}")
    pruned = program.clone(for_test=True)._prune_with_input(feeds, targets)._inference_optimize()
    block = pruned.global_block()
    block.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
    block.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
    for column, name in reversed(list(enumerate(feeds))):
        op = Operator(block, "feed", {"X": ["feed"]}, {"Out": [name]}, {"col": column})
        block.ops.insert(0, op)
    for column, target in enumerate(targets):
        block.ops.append(Operator(block, "fetch", {"X": [name_of(target)]}, {"Out": ["fetch"]}, {"col": column}))
    pruned.changed()
    return pruned


def feeds_and_fetches(program: Program) -> tuple[list[str], list[str]]:
    """The variables an inference program's feed and fetch ops name, by column."""
    ops = program.global_block().ops
    feeds = sorted((op for op in ops if op.type == "feed"), key=lambda op: op.attr("col"))
    fetches = sorted((op for op in ops if op.type == "fetch"), key=lambda op: op.attr("col"))
    return [op.output("Out")[0] for op in feeds], [op.input("X")[0] for op in fetches]
