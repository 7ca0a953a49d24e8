"""Reading tables from files: a whole snapshot, or a delta with all that it is based on."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from refluid.files.storage import AnyPath, RemotePath, at
from refluid.runtime.tables.files.manifest import Base, Manifest, read_manifest
from refluid.runtime.tables.files.parts import GONE, PAST, ROWS, Part, TableFileError, read_part, size_of
from refluid.runtime.tables.records import RecordForm


@dataclass(frozen=True)
class SavedSnapshot:
    """One snapshot in files: the path of its manifest, and what that says."""

    path: AnyPath
    manifest: Manifest

    def chunks(self, part: Part) -> Iterator[tuple[bytes, np.ndarray]]:
        """What one of its files holds; see `read_part`."""
        return read_part(self.path.parent / part.name, part, self.manifest.id, self.manifest.form)


@dataclass(frozen=True)
class SavedTable:
    """A table in files: a whole snapshot and the deltas that follow it, oldest first."""

    snapshots: tuple[SavedSnapshot, ...]

    @property
    def path(self) -> AnyPath:
        return self.snapshots[-1].path

    @property
    def manifest(self) -> Manifest:
        """Of the latest snapshot: its form, optimizer, beginning and step are those of the table."""
        return self.snapshots[-1].manifest

    @property
    def form(self) -> RecordForm:
        return self.manifest.form

    def records(self, wanted: Callable[[Part], bool] = lambda part: True) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids and records of all rows, each once and as it is in the latest snapshot that has it, a part at a time.

        Takes memory for the ids that deltas hold.

        Args:
          wanted: which files are read; the others hold no rows that are of interest.
        """
        replaced = np.empty(0, np.int64)  # by what later snapshots say, sorted
        for saved in reversed(self.snapshots):
            later = [replaced]
            for part in filter(wanted, saved.manifest.parts):
                for kind, values in saved.chunks(part):
                    if kind == GONE:
                        later.append(values)
                    elif kind == ROWS:
                        ids = self.form.ids_of(values)
                        if saved.manifest.base is not None:
                            later.append(ids)
                        kept = ~is_in(ids, replaced)
                        yield ids[kept], values[kept]
            replaced = np.unique(np.concatenate(later))

    def past(self) -> np.ndarray:
        """What rows that are not up to date need to know of the steps before, from the server that was furthest."""
        saved = self.snapshots[-1]
        part = max(saved.manifest.parts, key=lambda part: part.step)
        found = [np.empty(0)]
        for kind, values in saved.chunks(part):
            if kind != PAST:  # they come first
                break
            found.append(values)
        return np.concatenate(found)


def open_table(path: str | os.PathLike[str] | AnyPath) -> SavedTable:
    """Opens the table whose manifest is at a path, with all that it is based on.

    Raises:
      TableFileError: a file is missing, damaged, or does not belong to the others; the message names it.
    """
    here = at(path)
    found = [SavedSnapshot(here, read_manifest(here))]
    seen = {found[0].manifest.id}
    while (base := found[0].manifest.base) is not None:
        if base.id in seen:
            raise TableFileError(f"{here} is based on itself")
        seen.add(base.id)
        found.insert(0, _open_base(found[0], base))
    for saved in found:
        for part in saved.manifest.parts:
            size_of(saved.path.parent / part.name, part)
    return SavedTable(tuple(found))


def _open_base(delta: SavedSnapshot, base: Base) -> SavedSnapshot:
    path = resolve(delta.path.parent, base.path)
    if not path.is_file():
        raise TableFileError(f"{delta.path} holds what has changed since {path}, which is missing")
    found = SavedSnapshot(path, read_manifest(path))
    ours, theirs = delta.manifest, found.manifest
    if theirs.id != base.id:
        raise TableFileError(f"{delta.path} is based on a snapshot that was at {path}; another one is there now")
    if (ours.form, ours.optimizer, ours.table) != (theirs.form, theirs.optimizer, theirs.table):
        raise TableFileError(f"{delta.path} and {path}, which it is based on, differ in table, form or optimizer")
    return found


def resolve(folder: AnyPath, path: str) -> AnyPath:
    """A path as a manifest has it: absolute, or relative to a folder."""
    if "://" in path or os.path.isabs(path):
        return at(path)
    if isinstance(folder, RemotePath):
        return RemotePath(folder.system, posixpath.normpath(posixpath.join(folder.path, path)))
    return Path(os.path.normpath(folder / path))


def relative(path: AnyPath, folder: AnyPath) -> str:
    """A path as a manifest in a folder has it: folders that move together find each other."""
    if isinstance(path, RemotePath) and isinstance(folder, RemotePath) and path.system is folder.system:
        return posixpath.relpath(path.path, folder.path)
    if isinstance(path, Path) and isinstance(folder, Path):
        return os.path.relpath(os.path.abspath(path), os.path.abspath(folder))
    return str(path) if isinstance(path, RemotePath) else os.path.abspath(path)


def is_in(ids: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Whether each id is among others, which are sorted."""
    if not len(among):
        return np.zeros(len(ids), bool)
    places = np.searchsorted(among, ids)
    places[places == len(among)] = 0
    return among[places] == ids
