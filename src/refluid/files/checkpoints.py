"""Checkpoints: numbered folders with everything needed to resume training; a crash never leaves a broken one in use.

A checkpoint holds the variables, the progress, and, written last, a manifest with the size and SHA-256 of both. Its
folder is renamed to ``checkpoint_<number>`` when all of it is on disk (where folders cannot be renamed, the manifest
comes last), and only then are older ones removed. A reader takes the newest folder whose files match its manifest.
One process at a time writes to a folder of checkpoints.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from refluid.errors import CheckpointWarning
from refluid.faults import fault_point
from refluid.files.hashing import HashingStream, hash_file
from refluid.files.storage import AnyPath, RemotePath, at
from refluid.files.tensors import write_holder
from refluid.files.variables import is_persistable, load_variables
from refluid.files.writing import write_together
from refluid.ir import Program, Variable
from refluid.scope import Scope

VARIABLES = "__persistables__"
PROGRESS = "progress.json"
MANIFEST = "manifest.json"
_NAME = re.compile(r"checkpoint_(\d+)")
_UNFINISHED = re.compile(r"\.checkpoint_\d+\.([0-9a-f]+\.partial|removed)")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    number: int
    folder: AnyPath
    progress: dict[str, Any]


def save_checkpoint(folder: Any, scope: Scope, program: Program, progress: dict[str, Any], keep: int) -> AnyPath:
    """Writes the next checkpoint, then removes all but the newest ``keep``.

    Args:
      program: its persistable variables that have a value in the scope are saved.
      progress: anything else to save; must be JSON-serialisable.
    """
    root = at(folder)
    number = max(_numbers(root), default=-1) + 1
    _remove_unfinished(root)
    variables = _saved_variables(scope, program)
    files: dict[str, Any] = {}

    def write_variables(stream: HashingStream) -> None:
        for variable in variables:
            fault_point("write")
            write_holder(stream, scope.var(variable.name).holder)  # pyright: ignore[reportArgumentType]

    def write_hashed(name: str, write: Any, stream: BinaryIO) -> None:
        hashing = HashingStream(stream)
        write(hashing)
        files[name] = hashing.fingerprint()

    def write_manifest(stream: BinaryIO) -> None:
        stream.write(_json({"format": 1, "files": files, "variables": [v.name for v in variables]}))

    complete = root / f"checkpoint_{number}"
    writers = {
        VARIABLES: partial(write_hashed, VARIABLES, write_variables),
        PROGRESS: partial(write_hashed, PROGRESS, lambda stream: stream.write(_json(progress))),
        MANIFEST: write_manifest,
    }
    write_together(complete, writers)
    _remove(root, sorted(_numbers(root))[:-keep])
    return complete


def newest_checkpoint(folder: Any) -> Checkpoint | None:
    """The newest complete checkpoint; skips damaged ones with a warning."""
    root = at(folder)
    for number in sorted(_numbers(root), reverse=True):
        path = root / f"checkpoint_{number}"
        problem = find_damage(path)
        if problem is None:
            return Checkpoint(number, path, json.loads((path / PROGRESS).read_text(encoding="utf-8")))
        warnings.warn(f"{path} is not used: {problem}", CheckpointWarning, stacklevel=2)
    return None


def load_checkpoint(checkpoint: Checkpoint, scope: Scope, program: Program) -> None:
    """Restores the variables of the program to their values in the checkpoint."""
    manifest = json.loads((checkpoint.folder / MANIFEST).read_text(encoding="utf-8"))
    variables = _saved_variables(scope, program)
    saved, wanted = set(manifest["variables"]), {v.name for v in variables}
    if saved != wanted:
        parts = [("only the checkpoint has", saved - wanted), ("only the program has", wanted - saved)]
        differences = "; ".join(f"{text} {', '.join(sorted(names))}" for text, names in parts if names)
        raise ValueError(f"{checkpoint.folder} was written by another model: {differences}")
    load_variables(scope, variables, str(checkpoint.folder), VARIABLES)


def remove_checkpoints(folder: Any) -> None:
    """Removes every checkpoint, complete or not, and nothing else."""
    root = at(folder)
    _remove(root, sorted(_numbers(root)))
    _remove_unfinished(root)


def find_damage(folder: AnyPath) -> str | None:
    """What is wrong with a checkpoint, or None if its files match its manifest."""
    try:
        if (missing := [name for name in (MANIFEST, VARIABLES, PROGRESS) if not (folder / name).is_file()]) != []:
            return f"it has no {missing[0]}"
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != 1 or "variables" not in manifest:
            return f"its format is {manifest['format']}; only format 1 is supported"
        for name in (VARIABLES, PROGRESS):
            if hash_file(folder / name) != manifest["files"][name]:
                return f"{name} does not match its checksum"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its manifest cannot be read: {error!r}"
    return None


def _saved_variables(scope: Scope, program: Program) -> list[Variable]:
    """What this process holds; servers keep their own."""
    remote = scope.remote
    found = [(v, scope.find_var(v.name)) for v in program.list_vars() if is_persistable(v) and v.name not in remote]
    return sorted((v for v, held in found if held is not None and held.value is not None), key=lambda v: v.name)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode()


def _numbers(root: AnyPath) -> list[int]:
    if not root.is_dir():
        return []
    return [int(match[1]) for path in root.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()]


def _remove(root: AnyPath, numbers: Sequence[int]) -> None:
    """Renames a checkpoint, or removes its manifest, before removing its files, so that half of one is never read."""
    for number in numbers:
        folder = root / f"checkpoint_{number}"
        if isinstance(folder, RemotePath):
            (folder / MANIFEST).remove()
            fault_point("remove")
            folder.remove()
            continue
        hidden = folder.with_name(f".checkpoint_{number}.removed")
        shutil.rmtree(hidden, ignore_errors=True)
        folder.rename(hidden)
        for name in (MANIFEST, VARIABLES):
            fault_point("remove")
            (hidden / name).unlink(missing_ok=True)
        fault_point("remove")
        shutil.rmtree(hidden)


def _remove_unfinished(root: AnyPath) -> None:
    for path in [*root.iterdir()] if root.is_dir() else []:
        if _UNFINISHED.fullmatch(path.name):
            if isinstance(path, RemotePath):
                path.remove()
            else:
                shutil.rmtree(path)
