"""Tables that grow, loaded by a server: where their rows are in files is found first, and read when the server begins.

A folder may hold a snapshot of a table; the file of a tensor, as a local run or real Fluid writes it, whose rows are
numbered from 0; or ``__lookup_table__``, the rows of the one distributed table of a job of real Fluid.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from refluid.files.storage import AnyPath, at, files_below
from refluid.files.tensors import TensorFileError, read_lod_tensor, read_rows
from refluid.files.variables import set_arrays
from refluid.files.writing import path_inside
from refluid.ir.program import Program
from refluid.ir.slices import Slice
from refluid.ir.vartype import as_numpy
from refluid.runtime.tables.files.chain import SavedTable, open_table
from refluid.runtime.tables.files.loading import WEIGHTS_ONLY_HINT, check_width
from refluid.runtime.tables.files.manifest import is_manifest
from refluid.runtime.tables.files.parts import TableFileError
from refluid.scope import Scope

LOOKUP_TABLE = "__lookup_table__"
_WHERE = "@ROWS"  # ends the name of the variable that says where the rows of a table are
_MANIFEST, _TENSOR, _ROWS = "manifest", "tensor", "rows"

Where = tuple[str, str]  # what kind of files, and their path


def find_tables(program: Program, parts: Sequence[Slice], folder: str) -> dict[str, Where]:
    """Where a folder holds each of the slices, which all are of tables that grow or of their states.

    Raises:
      FileNotFoundError, TableFileError: it does not, or not for this program; the message names the file.
    """
    found: dict[str, Where] = {}
    covered: list[SavedTable] = []
    for part in parts:
        path = path_inside(folder, part.whole)
        if is_manifest(path):
            saved = open_table(path)
            described = next(block.vars[part.name] for block in program.blocks if part.name in block.vars)
            check_width(saved, math.prod(part.whole_shape[1:]), np.dtype(as_numpy(described.dtype)))
            covered.append(saved)
            found[part.name] = _MANIFEST, str(path)
        elif path.is_file():
            found[part.name] = _TENSOR, str(path)
        elif (at(folder) / LOOKUP_TABLE).exists():
            found[part.name] = _ROWS, str(at(folder) / LOOKUP_TABLE)
    for part in parts:
        if part.name not in found and not any(_covers(saved, part.whole) for saved in covered):
            raise _missing(part.whole, folder, covered)
    return found


def _missing(name: str, folder: str, covered: Sequence[SavedTable]) -> Exception:
    for saved in covered:
        if name.startswith(f"{saved.manifest.table}_"):
            return TableFileError(
                f"{saved.path} was trained with {saved.manifest.optimizer}, which does not keep {name}; does this "
                f"program use another optimizer?\n{WEIGHTS_ONLY_HINT}"
            )
    path = path_inside(folder, name)
    return FileNotFoundError(f"variable {name}: there is no file {path}, and no {LOOKUP_TABLE} beside it")


def hold_tables(scope: Scope, found: Mapping[str, Where]) -> None:
    """Has the tables of a server that begins in this scope begin with these rows."""
    texts = {name: json.dumps(where).encode() for name, where in found.items()}
    set_arrays(scope, {name + _WHERE: np.frombuffer(text, np.uint8) for name, text in texts.items()})


def held_table(scope: Scope, name: str) -> SavedTable | None:
    """The snapshot that a table begins with, if it is one."""
    kind, path = _where(scope, name)
    return open_table(path) if kind == _MANIFEST else None


def held_rows(
    scope: Scope, name: str, width: int, states: Mapping[str, str]
) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
    """The rows that a table begins with, if they are in files of Fluid: ids, weights, and states by slot."""
    kind, path = _where(scope, name)
    if kind == _TENSOR:
        weights = _tensor(path, width)
        slots = {slot: _tensor(_where(scope, state)[1], width) for slot, state in states.items()}
        yield np.arange(len(weights)), weights, slots
    elif kind == _ROWS:
        folder = at(path)
        for each in [folder] if folder.is_file() else [folder / inner for inner in files_below(folder)]:
            yield *_selected_rows(each, width), {}


def _where(scope: Scope, name: str) -> Where:
    held = scope.find_var(name + _WHERE)
    if held is None or held.value is None:
        return "", ""
    kind, path = json.loads(np.asarray(held.value).tobytes())
    return kind, path


def _covers(saved: SavedTable, name: str) -> bool:
    """Whether a snapshot has a variable among what the optimizer kept, or leaves all of it out."""
    manifest = saved.manifest
    return name in manifest.states.values() or (not manifest.optimizer and name.startswith(f"{manifest.table}_"))


def _tensor(path: str, width: int) -> np.ndarray:
    with at(path).open("rb") as stream:
        try:
            value = np.asarray(read_lod_tensor(stream).value)
        except TensorFileError as error:
            raise TensorFileError(f"{path}: {error}") from error
    return _of_width(path, value, width)


def _selected_rows(path: AnyPath, width: int) -> tuple[np.ndarray, np.ndarray]:
    with path.open("rb") as stream:
        try:
            ids, _, values = read_rows(stream)
        except TensorFileError as error:
            raise TensorFileError(f"{path}: {error}") from error
    return ids, _of_width(path, values[: len(ids)], width)


def _of_width(path: object, value: np.ndarray, width: int) -> np.ndarray:
    if value.ndim < 2 or math.prod(value.shape[1:]) != width:
        raise ValueError(
            f"{path} holds {value.dtype}{list(value.shape)}; in this program its rows have {width} weights"
        )
    return value.reshape(len(value), width)
