"""Saves and loads the variables of a program in Fluid's format, one file per variable or one file for all.

A crash never leaves half a file; see `refluid.files.writing.write_together` for what holds for a folder. Loading is all
or nothing: if a file is missing, damaged or belongs to another model, the scope stays as it was.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from refluid.errors import UninitializedError
from refluid.files.raw import left
from refluid.files.storage import AnyPath, file_in
from refluid.files.tensors import TensorFileError, read_lod_tensor, read_rows, read_selected_rows, write_holder
from refluid.files.writing import path_inside, write_together, writer_of
from refluid.ir import Operator, Program, Variable, VarType
from refluid.ir.slices import slices_of
from refluid.ir.vartype import as_numpy
from refluid.scope import Scope
from refluid.tensors import LoDTensor, RemoteArray, SelectedRowsTensor, on_same_device, own

LOADED = "@PARAMETERS_LOADED@"  # set in a server's scope when a model has been loaded into it

Folder = str | AnyPath
_NOT_SAVED = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER, VarType.RAW, VarType.STEP_SCOPES)


def is_persistable(variable: Variable) -> bool:
    """Whether a variable belongs in a checkpoint."""
    return variable.persistable and variable.type not in _NOT_SAVED


def save_variables(
    scope: Scope,
    variables: Sequence[Variable],
    folder: Folder,
    filename: str | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Writes one file per variable, or all into ``filename``, sorted by name.

    Args:
      beside: other files for the same folder, which appear together with the variables or after them.
    """
    holders = _holders(scope, variables, str(folder))
    writers: dict[str, Any] = {name: partial(_write_one, holder) for name, holder in holders.items()}
    if filename is not None:
        path = file_in(folder, filename)
        folder, writers = path.parent, {path.name: partial(_write_all, holders)}
    writers.update({name: writer_of(data) for name, data in (beside or {}).items()})
    write_together(folder, writers)


def variables_to_bytes(scope: Scope, variables: Sequence[Variable]) -> bytes:
    """The content of a combined file of the variables."""
    stream = io.BytesIO()
    _write_all(_holders(scope, variables, "memory"), stream)
    return stream.getvalue()


def _holders(scope: Scope, variables: Sequence[Variable], goal: str) -> dict[str, Any]:
    """The values in the scope of the variables that can be saved."""
    holders: dict[str, Any] = {}
    for variable in variables:
        if variable.type in _NOT_SAVED:
            continue
        held = scope.find_var(variable.name)
        if held is None or held.value is None:
            raise UninitializedError(variable.name, f"saving to {goal}", "run the startup program first")
        if not isinstance(held.holder, LoDTensor | SelectedRowsTensor):
            raise TypeError(
                f"variable {variable.name} holds a {type(held.holder).__name__}, which Fluid's format cannot store"
            )
        holders[variable.name] = held.holder
    return holders


def _write_one(holder: Any, stream: BinaryIO) -> None:
    write_holder(stream, holder)


def _write_all(holders: Mapping[str, Any], stream: BinaryIO) -> None:
    for _, holder in sorted(holders.items()):
        write_holder(stream, holder)


def load_variables(scope: Scope, variables: Sequence[Variable], folder: Folder, filename: str | None = None) -> None:
    """Loads the files of `save_variables`; variables keep their shapes and dtypes."""
    set_holders(scope, read_variables(variables, folder, filename))


def load_slices(scope: Scope, program: Program, folder: str) -> None:
    """Reads the slices that a server's program holds out of the files of whole variables, but for tables that grow.

    The server then begins with these values, whatever trainers begin with.
    """
    parts = [part for part in slices_of(program) if not part.grows]
    block = Program().global_block()
    wholes = {part.whole: block.create_var(name=part.whole, shape=part.whole_shape) for part in parts}
    for part in parts:
        described = next((b.vars[part.name] for b in program.blocks if part.name in b.vars), None)
        if described is not None:
            wholes[part.whole].dtype = described.dtype
    found = read_variables(list(wholes.values()), folder)
    arrays = {part.name: np.asarray(found[part.whole].value)[part.start : part.end] for part in parts}
    set_arrays(scope, {**arrays, LOADED: np.ones(1, np.int64)})


def read_variables(variables: Sequence[Variable], folder: Folder, filename: str | None = None) -> dict[str, Any]:
    """Reads the values of variables from files; returns tensors by name."""
    variables = [v for v in variables if v.type not in _NOT_SAVED]
    if filename is not None:
        path = file_in(folder, filename)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}, which should hold {_listed(variables)}")
        with path.open("rb") as stream:
            return _read_all(stream, variables, str(path))
    found = {}
    for variable in variables:
        path = path_inside(folder, variable.name)
        if not path.is_file():
            raise FileNotFoundError(f"variable {variable.name}: there is no file {path}")
        with path.open("rb") as stream:
            if stream.read(1) == b"{":  # files of Fluid begin with zeros
                found[variable.name] = _read_table(variable, path)
                continue
            stream.seek(0)
            found.update(_read_all(stream, [variable], str(path)))
    return found


def _read_table(variable: Variable, path: AnyPath) -> LoDTensor:
    """A table that parameter servers have saved; how is the runtime's business."""
    from refluid.runtime.inference.saved_rows import read_here

    value = read_here(path, variable)
    return LoDTensor(own(value) if isinstance(value, np.ndarray) else value)


def looks_up_any(variable: Variable) -> bool:
    """Whether a variable is a table of selected rows that operators look rows of any ids up in."""
    return variable.type == VarType.SELECTED_ROWS and any(lookups_in(variable.block.program, variable.name))


def lookups_in(program: Program, table: str) -> Iterator[Operator]:
    """The operators that look rows up in a table."""
    for op in (op for block in program.blocks for op in block.ops):
        if op.type in ("lookup_table", "lookup_table_v2") and table in op.input("W"):
            yield op


def _held_rows(variable: Variable, ids: np.ndarray, height: int, values: np.ndarray) -> LoDTensor:
    """Selected rows that a model for inference looks up; how is the runtime's business."""
    from refluid.runtime.inference.any_rows import hold_rows

    return LoDTensor(hold_rows(variable, ids, values[: len(ids)]))


def read_variables_from_bytes(variables: Sequence[Variable], data: bytes) -> dict[str, Any]:
    """Reads the values of variables from the bytes of a combined file."""
    return _read_all(io.BytesIO(data), [v for v in variables if v.type not in _NOT_SAVED], "memory")


def _read_all(stream: BinaryIO, variables: Sequence[Variable], source: str) -> dict[str, Any]:
    found = {}
    for variable in sorted(variables, key=lambda v: v.name):
        if found and not left(stream):
            raise TensorFileError(
                f"variable {variable.name}: {source} does not hold it; "
                f"it ends after {len(found)} of {len(variables)} variables, expected {_described(variable)}"
            )
        try:
            if looks_up_any(variable):
                found[variable.name] = _held_rows(variable, *read_rows(stream))
                continue
            is_rows = variable.type == VarType.SELECTED_ROWS
            holder = found[variable.name] = read_selected_rows(stream) if is_rows else read_lod_tensor(stream)
        except TensorFileError as error:
            expected = f"expected {_described(variable)}"
            raise TensorFileError(f"variable {variable.name}: {source}: {error}; {expected}") from error
        if isinstance(holder, LoDTensor):
            check_fits(variable, holder.value, source)
    if stream.read(1):
        raise TensorFileError(f"{source} holds more than the tensors of {_listed(variables)}")
    return found


def _described(variable: Variable) -> str:
    dtype = "" if variable._dtype is None else np.dtype(as_numpy(variable.dtype)).name
    return f"{dtype}{list(variable.shape)}"


def _listed(variables: Sequence[Variable]) -> str:
    names = sorted(variable.name for variable in variables)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def check_fits(variable: Variable, array: Any, source: str) -> None:
    """Raises ValueError unless a value has the shape and dtype of its variable, where these are known."""
    want, have = variable.shape, array.shape
    fits = len(have) == len(want) and all(w in (-1, h) for h, w in zip(have, want, strict=True))
    if want and not fits:
        raise ValueError(
            f"variable {variable.name} has shape {list(want)}, but {source} holds {list(have)}; "
            "the file belongs to another model"
        )
    if variable._dtype is not None and np.dtype(as_numpy(variable.dtype)) != array.dtype:
        raise ValueError(
            f"variable {variable.name} is {np.dtype(as_numpy(variable.dtype))}, but {source} holds {array.dtype}"
        )


def set_holders(scope: Scope, holders: Mapping[str, Any]) -> None:
    """Puts loaded tensors into a scope; existing tensors are updated in place, so compiled steps see the values.

    A value that replaces another one goes to the device of that one. Nothing is changed if one of them is held by other
    processes.
    """
    for name in holders:
        held = scope.find_var(name)
        if held is not None and isinstance(held.holder, LoDTensor) and not _is_for_inference(held.holder):
            held.holder.check_writable("a value that is loaded")
    for name, holder in holders.items():
        if isinstance(holder, LoDTensor) and isinstance(holder.value, RemoteArray):
            scope.hold_remotely(name, holder.value)
            continue
        variable = scope.var(name)
        if isinstance(variable.holder, LoDTensor) and isinstance(holder, LoDTensor):
            variable.holder.value = on_same_device(holder.value, variable.holder.value)
            variable.holder._lod = holder._lod
        else:
            variable.holder = holder


def _is_for_inference(holder: LoDTensor) -> bool:
    return isinstance(holder.value, RemoteArray) and holder.value.any_ids


def set_arrays(scope: Scope, arrays: Mapping[str, np.ndarray]) -> None:
    """Puts copies of arrays into a scope."""
    give_arrays(scope, {name: np.array(array) for name, array in arrays.items()})


def give_arrays(scope: Scope, arrays: Mapping[str, np.ndarray]) -> None:
    """Puts arrays into a scope without copying; the caller must not use them afterwards."""
    set_holders(scope, {name: LoDTensor(own(array)) for name, array in arrays.items()})


def feeds_and_fetches(program: Program) -> tuple[list[str], list[str]]:
    """The names in an inference program's feed and fetch ops, in column order."""
    ops = program.global_block().ops
    feeds = sorted((op for op in ops if op.type == "feed"), key=lambda op: op.attrs.get("col", 0))
    fetches = sorted((op for op in ops if op.type == "fetch"), key=lambda op: op.attrs.get("col", 0))
    return [name for op in feeds for name in op.output("Out")], [name for op in fetches for name in op.input("X")]
