"""Fluid 1.6's `fluid.save` format: ``PREFIX.pdparams`` and ``PREFIX.pdopt`` (pickled dicts), ``PREFIX.pdmodel``."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from refluid.errors import PythonCodeError, UninitializedError
from refluid.files.pickle_writing import write_pickle
from refluid.files.pickles import PickleError, read_pickle
from refluid.files.storage import PARTIAL, AnyPath, at, files_below
from refluid.files.tensors import TensorFileError, read_lod_tensor
from refluid.files.variables import check_fits, give_arrays, is_persistable, load_variables, read_variables, set_arrays
from refluid.files.writing import write_together, writer_of
from refluid.ir import Parameter, Program, Variable
from refluid.scope import Scope

_SUFFIXES = (".pdparams", ".pdopt", ".pdmodel")


def save_state(scope: Scope, program: Program, path: str) -> None:
    """Writes the parameters, the other persistable variables and the program into three files.

    Nothing reads the program again, so one that calls Python code is left out, with a warning.
    """
    prefix = at(path)
    if path.endswith("/") or not prefix.name:
        raise ValueError(f"{path!r} must end in a file name prefix, such as 'folder/model'")
    writers: dict[str, Any] = {}
    for suffix, variables in ((".pdparams", parameters(program)), (".pdopt", optimizer_state(program))):
        arrays = {v.name: _value(scope, v, path) for v in variables}
        writers[prefix.name + suffix] = partial(write_pickle, arrays=arrays)
    try:
        writers[prefix.name + ".pdmodel"] = writer_of(program.desc.serialize_to_string())
    except PythonCodeError as error:
        warnings.warn(f"{path}.pdmodel is not written: {error.op_type}: {error.problem}", UserWarning, stacklevel=3)
    write_together(prefix.parent, writers)


def parameters(program: Program) -> list[Variable]:
    """The parameters of a program."""
    return [v for v in program.list_vars() if isinstance(v, Parameter)]


def optimizer_state(program: Program) -> list[Variable]:
    """The other persistable variables: optimizer state, learning rate, counters."""
    return [
        v for v in program.list_vars() if is_persistable(v) and not isinstance(v, Parameter) and not v.need_check_feed
    ]


def _value(scope: Scope, variable: Variable, path: str) -> np.ndarray:
    held = scope.find_var(variable.name)
    if held is None or held.value is None:
        raise UninitializedError(variable.name, f"saving to {path}", "run the startup program first")
    return np.asarray(held.get_tensor().value)


def load_state(scope: Scope, program: Program, path: str, variables: Sequence[Variable] | None = None) -> None:
    """Loads the files of `save_state`, or a folder or combined file of variables, into a scope; all or nothing."""
    prefix = _prefix(path)
    if not at(prefix + ".pdparams").exists():
        _load_variable_files(scope, program, path, variables)
        return
    found: dict[str, np.ndarray] = {}
    for suffix, wanted in ((".pdparams", parameters(program)), (".pdopt", optimizer_state(program))):
        if wanted:
            found.update(_pick(wanted, read_arrays(prefix + suffix), prefix + suffix))
    give_arrays(scope, found)


def _pick(variables: Sequence[Variable], arrays: Mapping[str, Any], path: str) -> dict[str, np.ndarray]:
    missing = [v.name for v in variables if v.name not in arrays]
    if missing:
        raise ValueError(f"{path} has no value for {', '.join(missing[:10])}; it belongs to another model")
    for variable in variables:
        if not isinstance(arrays[variable.name], np.ndarray | np.generic):
            raise PickleError(f"variable {variable.name}: {path} holds a {type(arrays[variable.name]).__name__} for it")
        check_fits(variable, arrays[variable.name], path)
    counts = Counter(map(id, arrays.values()))  # a file may share one array between two names; a scope does not
    return {v.name: arrays[v.name].copy() if counts[id(arrays[v.name])] > 1 else arrays[v.name] for v in variables}


def read_arrays(path: str) -> dict[str, Any]:
    """The arrays of a ``.pdparams`` or ``.pdopt`` file, by name; nothing in the file is run."""
    try:
        with at(path).open("rb") as stream:
            found = read_pickle(stream)
    except PickleError as error:
        raise PickleError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise PickleError(f"{path}: holds a {type(found).__name__}, not arrays by name")
    return found


def _load_variable_files(scope: Scope, program: Program, path: str, variables: Sequence[Variable] | None) -> None:
    if at(path).is_dir():
        names = set(_saved_files(path))
        load_variables(scope, [v for v in program.list_vars() if v.name in names], path)
    elif at(path).is_file():
        load_variables(scope, _needed_list(path, variables), "", path)
    else:
        raise FileNotFoundError(f"there is neither {_prefix(path)}.pdparams nor {path}")


def _needed_list(path: str, variables: Sequence[Variable] | None) -> Sequence[Variable]:
    if variables is None:
        raise ValueError(f"{path} holds several variables without their names: pass var_list")
    return variables


def read_state(path: str, variables: Sequence[Variable] | None = None) -> dict[str, np.ndarray]:
    """The arrays of what `save_state` wrote, or of a folder or combined file of variables, by name."""
    prefix = _prefix(path)
    if at(prefix + ".pdparams").exists():
        found = read_arrays(prefix + ".pdparams")
        if at(prefix + ".pdopt").exists():
            found.update(read_arrays(prefix + ".pdopt"))
        return found
    if at(path).is_file():
        holders = read_variables(_needed_list(path, variables), "", path)
    elif variables is not None:
        holders = read_variables(variables, path)
    else:
        holders = {name: _read_alone(at(path) / name) for name in _saved_files(path)}
    return {name: np.array(holder) for name, holder in holders.items()}


def _read_alone(path: AnyPath) -> Any:
    try:
        with path.open("rb") as stream:
            return read_lod_tensor(stream)
    except TensorFileError as error:
        raise TensorFileError(f"{path}: {error}; without var_list, every file of a folder is read") from error


def _saved_files(folder: str) -> list[str]:
    if not at(folder).is_dir():
        raise FileNotFoundError(f"there is neither {_prefix(folder)}.pdparams nor {folder}")
    return [name for name in files_below(at(folder)) if not name.endswith(PARTIAL)]


def set_state(scope: Scope, program: Program, state: Mapping[str, Any]) -> list[str]:
    """Gives the program's persistable variables the values of ``state``; returns the names that it has no use for."""
    variables = {v.name: v for v in program.list_vars() if is_persistable(v)}
    for name, variable in variables.items():
        held = scope.find_var(name)
        if held is None or held.value is None:
            raise UninitializedError(name, "set_program_state", "run the startup program first")
        if name in state:
            check_fits(variable, np.asarray(state[name]), "the state")
    set_arrays(scope, {name: np.asarray(state[name]) for name in variables if name in state})
    return [name for name in state if name not in variables]


def _prefix(path: str) -> str:
    for suffix in _SUFFIXES:
        if path.endswith(suffix):
            return path.removesuffix(suffix)
    return path
