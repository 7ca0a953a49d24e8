"""Snapshots of a server in files: one folder each, complete when its manifest is there.

    snapshot.000000000007.0123456789abcdef0123456789abcdef/
      state                the variables and what the server knows of trainers and rounds, as `trees` writes them
      NAME, NAME.ID.0.rows a table: its manifest and its rows, whole or those that were touched since the base
      tail                 what the server did next, until it had the pushes that end the snapshot, as `records` has it
      manifest.json        written last: what belongs to the snapshot, and checksums

A snapshot whose manifest is missing was never finished; nothing reads it. A delta's folder is kept as long as one that
is based on it. The servers of a job write theirs under the same number and id (see `cuts`), each in its own folder.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from refluid.faults import fault_point
from refluid.files.storage import AnyPath, RemotePath
from refluid.files.writing import atomic_write, sync_folder
from refluid.ops.core.growing import SHARDS
from refluid.runtime.server.durable.trees import from_bytes, to_buffers
from refluid.runtime.server.held_tables import HeldTable
from refluid.runtime.tables.files.chain import open_table, relative
from refluid.runtime.tables.files.loading import load_all
from refluid.runtime.tables.files.manifest import Base, new_id
from refluid.runtime.tables.files.saving import PartOrder, PartSnapshot, describe_table, has_changes_since, manifest_of
from refluid.runtime.tables.kernels import layout

FORMAT = 3
_MANIFEST, _STATE, _TAIL = "manifest.json", "state", "tail"
_NAME = re.compile(r"snapshot\.(\d{12})\.([0-9a-f]{32})")
_LENGTH = struct.Struct("<Q")
_LONGEST_CHAIN = 8  # deltas that follow one whole snapshot of a table


class SnapshotError(RuntimeError):
    """A snapshot of a server is damaged, or belongs to another program; the message names it."""


class Name(NamedTuple):
    """The name of a snapshot, the same on all servers; a later one has a larger number."""

    number: int
    id: str

    def __str__(self) -> str:
        return f"snapshot.{self.number:012d}.{self.id}"


class Link(NamedTuple):
    """A snapshot of a table that a delta may follow: its manifest, and its id."""

    path: AnyPath
    id: str


@dataclass(frozen=True)
class SavedSnapshot:
    """A complete snapshot in files."""

    folder: AnyPath
    manifest: Mapping[str, Any]

    @property
    def name(self) -> Name:
        return Name(self.manifest["number"], self.manifest["id"])

    def state(self) -> Any:
        """What was saved next to the tables."""
        return from_bytes(self._read(_STATE))

    def tail(self) -> Iterator[bytes]:
        """The records that follow."""
        data, place = self._read(_TAIL), 0
        while place < len(data):
            (length,) = _LENGTH.unpack_from(data, place)
            place += _LENGTH.size + length
            yield data[place - length : place]

    def folders(self) -> set[str]:
        """The names of its folder and of those that it is based on."""
        tables = (open_table(self.folder / name) for name in self.manifest["tables"].values())
        return {str(self.name), *(each.path.parent.name for table in tables for each in table.snapshots)}

    def _read(self, name: str) -> bytes:
        data, described = (self.folder / name).read_bytes(), self.manifest[name]
        if len(data) != described["bytes"] or zlib.crc32(data) != described["checksum"]:
            raise SnapshotError(f"{self.folder / name} is damaged: it does not match its manifest")
        return data

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
        self._chains: dict[str, list[Link]] = {}  # parameter -> its complete snapshots, whole one first
        self._kept: set[str] = set()  # folders of the last snapshot that all servers have
        self._begun = ""  # the folder of the last one that was begun

    def names(self) -> list[Name]:
        """The names of all complete snapshots, newest first."""
        found = [folder.name for folder in self._folders() if (folder / _MANIFEST).is_file()]
        return sorted((_name_of(name) for name in found), reverse=True)

    def read(self, name: Name) -> SavedSnapshot:
        """A complete snapshot.

        Raises:
          SnapshotError: its manifest is damaged.
        """
        folder = self.folder / str(name)
        return SavedSnapshot(folder, _read_manifest(folder / _MANIFEST))

    def begin(self, name: Name, tables: Mapping[str, HeldTable]) -> list[tuple[HeldTable, PartSnapshot]]:
        """Fixes the rows of all tables, between two updates; `write` writes them, and must be called."""
        folder, begun, self._begun = self.folder / str(name), [], str(name)
        try:
            for held in tables.values():
                chain = self._chains.get(held.update.param, [])
                base = chain[-1].id if 0 < len(chain) < _LONGEST_CHAIN else ""
                if not has_changes_since(held.table, base, layout.UNSAVED):  # or they are those since one given up
                    base = ""
                order = PartOrder(folder, new_id(), 0, base, chain=layout.UNSAVED)
                begun.append((held, PartSnapshot(held.table, held.update.param, (0, SHARDS), order)))
        except BaseException:
            for _, part in begun:
                part.close()
            raise
        return begun

    def write(self, name: Name, tree: Any, begun: list[tuple[HeldTable, PartSnapshot]]) -> Written:
        """Writes tables and state of a snapshot, which `complete` completes."""
        folder, names, size = self.folder / str(name), {}, 0
        chains: dict[str, list[Link]] = {}
        with ExitStack() as stack:
            for _, part in begun:
                stack.callback(part.close)
            for place, (held, part) in enumerate(begun):
                param, order = held.update.param, part.order
                names[param] = f"table.{place}"
                chain = self._chains.get(param, []) if order.base else []
                base = Base(relative(chain[-1].path, folder), order.base) if chain else None
                written = part.write()
                about = describe_table(held.table, {}, weights_only=False)
                path = folder / names[param]
                with atomic_write(path) as stream:
                    stream.write(manifest_of(param, order.snapshot, about, [written], base).to_bytes())
                chains[param] = [*chain, Link(path, order.snapshot)]
                size += written.bytes
        described = {_STATE: _write(folder / _STATE, to_buffers(tree)), "tables": names}
        return Written(name, chains, described, size + described[_STATE]["bytes"])

    def complete(self, written: Written, tail: Sequence[bytes], described: Mapping[str, Any]) -> int:
        """Completes a snapshot by the records that follow and, last, its manifest; returns its size in bytes."""
        folder, name = self.folder / str(written.name), written.name
        about_tail = _write(folder / _TAIL, [part for each in tail for part in (_LENGTH.pack(len(each)), each)])
        manifest = {
            **described, **written.described, _TAIL: about_tail,
            "format": FORMAT, "number": name.number, "id": name.id,
        }  # fmt: skip
        _write(folder / _MANIFEST, [json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1).encode()])
        if isinstance(self.folder, Path):
            sync_folder(self.folder)
        self._chains = written.chains
        return written.bytes + about_tail["bytes"]

    def keep(self, *saved: SavedSnapshot) -> None:
        """Keeps these snapshots, with what they are based on, and not those that were kept before."""
        self._kept = {folder for each in saved for folder in each.folders()}

    def tidy(self) -> None:
        """Removes what neither those that are kept nor the next one needs."""
        kept = {link.path.parent.name for chain in self._chains.values() for link in chain}
        kept |= {*self._kept, self._begun}
        spare = sorted(
            (folder for folder in self._folders() if folder.name not in kept), key=lambda path: _name_of(path.name)
        )
        for folder in spare:  # the oldest first: while the newest has its manifest, it has all that it is based on
            _remove_manifest(folder)
        for folder in spare:
            _remove(folder)

    def remove(self) -> None:
        """Removes all snapshots."""
        self._chains, self._kept, self._begun = {}, set(), ""
        self.tidy()

    def _folders(self) -> list[Any]:
        if isinstance(self.folder, Path) and not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]


@dataclass(frozen=True)
class Written:
    """The files of a snapshot that is not complete yet."""

    name: Name
    chains: dict[str, list[Link]]
    described: dict[str, Any]
    bytes: int


def _name_of(folder: str) -> Name:
    match = _NAME.fullmatch(folder)
    assert match is not None, "only such folders are listed"
    return Name(int(match[1]), match[2])


def _write(path: AnyPath, buffers: Sequence[Any]) -> dict[str, int]:
    """Writes a file; returns its size and checksum."""
    checksum = length = 0
    with atomic_write(path) as stream:
        for buffer in buffers:
            stream.write(buffer)
            checksum, length = zlib.crc32(buffer, checksum), length + memoryview(buffer).nbytes
    return {"bytes": length, "checksum": checksum}


def _remove_manifest(folder: Any) -> None:
    """Makes a snapshot nothing that a restart could go on from."""
    fault_point("remove")
    if isinstance(folder, RemotePath):
        (folder / _MANIFEST).remove()  # pyright: ignore[reportAttributeAccessIssue]
    else:
        (folder / _MANIFEST).unlink(missing_ok=True)


def _remove(folder: Any) -> None:
    fault_point("remove")
    if isinstance(folder, RemotePath):
        folder.remove()
    else:
        shutil.rmtree(folder, ignore_errors=True)


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
