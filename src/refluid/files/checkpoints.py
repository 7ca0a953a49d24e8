"""Checkpoints: numbered folders that hold all that training goes on from, of which a crash never leaves a wrong one.

A checkpoint is first written into a hidden folder: the variables, then the progress, then a manifest with the size and
SHA-256 of both. The folder gets its name, ``checkpoint_<number>``, when all of it is on disk, and only then are older
ones removed. A reader takes the newest folder whose files are what its manifest says. One process at a time writes to a
folder of checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from refluid.errors import CheckpointWarning
from refluid.faults import fault_point
from refluid.files.tensors import write_holder
from refluid.files.variables import is_persistable, load_variables
from refluid.ir import Program, Variable
from refluid.scope import Scope

VARIABLES = "__persistables__"
PROGRESS = "progress.json"
MANIFEST = "manifest.json"
_NAME = re.compile(r"checkpoint_(\d+)")
_UNFINISHED = re.compile(r"\.checkpoint_\d+\.(partial|removed)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    number: int
    folder: Path
    progress: dict[str, Any]


def save_checkpoint(folder: str | Path, scope: Scope, program: Program, progress: dict[str, Any], keep: int) -> Path:
    """Writes the next checkpoint, then removes all but the newest ``keep``.

    Args:
      program: its persistable variables are saved, as far as the scope has values for them.
      progress: what else to remember, as JSON can hold it.
    """
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    number = max(_numbers(root), default=-1) + 1
    partial = root / f".checkpoint_{number}.partial"
    _remove_unfinished(root)
    partial.mkdir()
    variables = _saved_variables(scope, program)
    with (partial / VARIABLES).open("wb") as stream:
        for variable in variables:
            write_holder(stream, scope.var(variable.name).holder)
            fault_point()
        _to_disk(stream)
    _write_json(partial / PROGRESS, progress)
    files = {name: _fingerprint(partial / name) for name in (VARIABLES, PROGRESS)}
    _write_json(partial / MANIFEST, {"format": 1, "files": files, "variables": [v.name for v in variables]})
    _folder_to_disk(partial)
    complete = root / f"checkpoint_{number}"
    fault_point()
    partial.rename(complete)
    fault_point()
    _folder_to_disk(root)
    _remove(root, sorted(_numbers(root))[:-keep])
    return complete


def newest_checkpoint(folder: str | Path) -> Checkpoint | None:
    """The newest complete checkpoint; damaged ones are passed over, with a warning."""
    root = Path(folder)
    for number in sorted(_numbers(root), reverse=True):
        path = root / f"checkpoint_{number}"
        problem = find_damage(path)
        if problem is None:
            return Checkpoint(number, path, json.loads((path / PROGRESS).read_text(encoding="utf-8")))
        warnings.warn(f"{path} is not used: {problem}", CheckpointWarning, stacklevel=2)
    return None


def load_checkpoint(checkpoint: Checkpoint, scope: Scope, program: Program) -> None:
    """Gives the variables of the program the values they had when the checkpoint was written."""
    manifest = json.loads((checkpoint.folder / MANIFEST).read_text(encoding="utf-8"))
    variables = _saved_variables(scope, program)
    saved, wanted = set(manifest["variables"]), {v.name for v in variables}
    if saved != wanted:
        parts = [("only the checkpoint has", saved - wanted), ("only the program has", wanted - saved)]
        differences = "; ".join(f"{text} {', '.join(sorted(names))}" for text, names in parts if names)
        raise ValueError(f"{checkpoint.folder} was written by another model: {differences}")
    load_variables(scope, variables, str(checkpoint.folder), VARIABLES)


def remove_checkpoints(folder: str | Path) -> None:
    """Removes every checkpoint, complete or not, and nothing else."""
    root = Path(folder)
    _remove(root, sorted(_numbers(root)))
    _remove_unfinished(root)


def find_damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None if its files are what its manifest says."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {name: (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()}
        if manifest["format"] != 1 or "variables" not in manifest:
            return f"its format is {manifest['format']}, and only 1 is known"
        for name in (VARIABLES, PROGRESS):
            size, digest = files[name]
            if (folder / name).stat().st_size != size or _fingerprint(folder / name)["sha256"] != digest:
                return f"{name} is not the file that was written"
    except FileNotFoundError as error:
        return f"it has no {Path(error.filename).name}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its manifest cannot be read: {error!r}"
    return None


def _saved_variables(scope: Scope, program: Program) -> list[Variable]:
    found = [(v, scope.find_var(v.name)) for v in program.list_vars() if is_persistable(v)]
    return sorted((v for v, held in found if held is not None and held.value is not None), key=lambda v: v.name)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    content = json.dumps(value, indent=1).encode()
    with path.open("wb") as stream:
        stream.write(content[: len(content) // 2])
        stream.flush()
        fault_point()
        stream.write(content[len(content) // 2 :])
        _to_disk(stream)
    fault_point()


def _to_disk(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _folder_to_disk(folder: Path) -> None:
    """A new name is on disk only after its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return {"size": stream.tell(), "sha256": digest}


def _numbers(root: Path) -> list[int]:
    if not root.is_dir():
        return []
    return [int(match[1]) for path in root.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()]


def _remove(root: Path, numbers: Sequence[int]) -> None:
    """Takes a checkpoint's name away before its files, so that half of one is never looked at."""
    for number in numbers:
        hidden = root / f".checkpoint_{number}.removed"
        shutil.rmtree(hidden, ignore_errors=True)
        (root / f"checkpoint_{number}").rename(hidden)
        for name in (MANIFEST, VARIABLES):
            fault_point()
            (hidden / name).unlink(missing_ok=True)
        fault_point()
        shutil.rmtree(hidden)


def _remove_unfinished(root: Path) -> None:
    for path in [*root.iterdir()] if root.is_dir() else []:
        if _UNFINISHED.fullmatch(path.name):
            shutil.rmtree(path)
