"""Snapshots of a server in files: one folder each, complete when its manifest is there.

    snapshot.000000000007/
      state                the variables and what the server knows of trainers and rounds, as `trees` writes them
      NAME, NAME.ID.0.rows a table: its manifest and its rows, whole or those that were touched since the base
      manifest.json        written last: what belongs to the snapshot, and checksums

A snapshot whose manifest is missing was never finished; nothing reads it. A delta's folder is kept as long as one that
is based on it.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refluid.faults import fault_point
from refluid.files.storage import AnyPath, RemotePath
from refluid.files.writing import atomic_write
from refluid.ops.core.growing import SHARDS
from refluid.runtime.server.durable.trees import from_bytes, to_buffers
from refluid.runtime.server.held_tables import HeldTable
from refluid.runtime.tables.files.chain import relative
from refluid.runtime.tables.files.loading import load_all
from refluid.runtime.tables.files.manifest import Base, new_id
from refluid.runtime.tables.files.saving import PartOrder, PartSnapshot, describe_table, has_changes_since, manifest_of
from refluid.runtime.tables.kernels import layout

FORMAT = 1
_MANIFEST, _STATE = "manifest.json", "state"
_NAME = re.compile(r"snapshot\.(\d{12})")
_LONGEST_CHAIN = 8  # deltas that follow one whole snapshot of a table


class SnapshotError(RuntimeError):
    """A snapshot of a server is damaged, or belongs to another program; the message names it."""


@dataclass(frozen=True)
class SavedSnapshot:
    """A complete snapshot in files."""

    folder: AnyPath
    manifest: Mapping[str, Any]

    @property
    def number(self) -> int:
        return self.manifest["number"]

    def state(self) -> Any:
        """What was saved next to the tables."""
        data = (self.folder / _STATE).read_bytes()
        described = self.manifest["state"]
        if len(data) != described["bytes"] or zlib.crc32(data) != described["checksum"]:
            raise SnapshotError(f"{self.folder / _STATE} is damaged: it does not match its manifest")
        return from_bytes(data)

    def load_table(self, held: HeldTable) -> None:
        """Replaces the rows of a table by those that were saved."""
        name = self.manifest["tables"].get(held.update.param)
        if name is None:
            raise SnapshotError(f"{self.folder} has no table {held.update.param}; is it of another program?")
        load_all(held.table, self.folder / name)


class Snapshots:
    """The snapshots of one server in a folder."""

    def __init__(self, folder: AnyPath):
        self.folder = folder
        self._chains: dict[str, list[AnyPath]] = {}  # parameter -> the manifests of its snapshots, whole one first

    def newest(self) -> SavedSnapshot | None:
        """The last complete snapshot, if there is one."""
        for folder in sorted(self._folders(), key=lambda each: each.name, reverse=True):
            path = folder / _MANIFEST
            if path.is_file():
                return SavedSnapshot(folder, _read_manifest(path))
        return None

    def begin(self, number: int, tables: Mapping[str, HeldTable]) -> list[tuple[HeldTable, PartSnapshot]]:
        """Fixes the rows of all tables, between two updates; `write` writes them, and must be called."""
        folder, begun = self._folder(number), []
        try:
            for held in tables.values():
                chain = self._chains.get(held.update.param, [])
                base = held.table.since[layout.UNSAVED] or ""
                if not 0 < len(chain) < _LONGEST_CHAIN or not has_changes_since(held.table, base, layout.UNSAVED):
                    base = ""
                order = PartOrder(folder, new_id(), 0, base, chain=layout.UNSAVED)
                begun.append((held, PartSnapshot(held.table, held.update.param, (0, SHARDS), order)))
        except BaseException:
            for _, part in begun:
                part.close()
            raise
        return begun

    def write(
        self, number: int, tree: Any, begun: list[tuple[HeldTable, PartSnapshot]], described: Mapping[str, Any]
    ) -> int:
        """Writes a snapshot, the manifest last; returns its size in bytes. Then removes what it replaces."""
        folder, names, size = self._folder(number), {}, 0
        chains: dict[str, list[AnyPath]] = {}
        with ExitStack() as stack:
            for _, part in begun:
                stack.callback(part.close)
            for place, (held, part) in enumerate(begun):
                param, order = held.update.param, part.order
                names[param] = f"table.{place}"
                chain = self._chains.get(param, []) if order.base else []
                base = Base(relative(chain[-1], folder), order.base) if chain else None
                written = part.write()
                about = describe_table(held.table, {}, weights_only=False)
                path = folder / names[param]
                with atomic_write(path) as stream:
                    stream.write(manifest_of(param, order.snapshot, about, [written], base).to_bytes())
                chains[param] = [*chain, path]
                size += written.bytes
        state, checksum, length = to_buffers(tree), 0, 0
        with atomic_write(folder / _STATE) as stream:
            for buffer in state:
                stream.write(buffer)
                checksum, length = zlib.crc32(buffer, checksum), length + len(buffer)
        manifest = {
            **described,
            "format": FORMAT,
            "number": number,
            "state": {"bytes": length, "checksum": checksum},
            "tables": names,
        }
        with atomic_write(folder / _MANIFEST) as stream:
            stream.write(json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1).encode())
        self._chains = chains
        self._remove_all_but({folder.name, *(path.parent.name for chain in chains.values() for path in chain)})
        return size + length

    def remove(self) -> None:
        """Removes all snapshots."""
        self._remove_all_but(set())

    def _remove_all_but(self, kept: set[str]) -> None:
        for folder in self._folders():
            if folder.name not in kept:
                fault_point("remove")
                manifest = folder / _MANIFEST  # without it, the rest is nothing
                if isinstance(folder, RemotePath):
                    manifest.remove()  # pyright: ignore[reportAttributeAccessIssue]
                    folder.remove()
                else:
                    manifest.unlink(missing_ok=True)  # pyright: ignore[reportAttributeAccessIssue]
                    shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, number: int) -> AnyPath:
        return self.folder / f"snapshot.{number:012d}"

    def _folders(self) -> list[Any]:
        if isinstance(self.folder, Path) and not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]


def _read_manifest(path: AnyPath) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
        checksum = found.pop("checksum")
    except (ValueError, KeyError, AttributeError) as error:
        raise SnapshotError(f"{path} is damaged: {error}") from error
    if checksum != _checksum(found):
        raise SnapshotError(f"{path} is damaged: it does not match its checksum")
    if found["format"] != FORMAT:
        raise SnapshotError(f"{path} has format {found['format']}; this version of refluid reads {FORMAT}")
    return found


def _checksum(manifest: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())
