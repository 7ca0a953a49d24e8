"""The manifest of a table in files: what its rows are like, which files hold them, and what a delta is based on.

A table ``emb`` in a folder is the file ``emb``, its manifest, and beside it the files of its rows,
``emb.ID.NUMBER.rows``, one of each server that wrote it. The manifest is JSON; it is written last, in place of the one
before, and has a checksum of its own. Readers take 16 times its size of memory, and at most `_MOST` bytes are read.
"""

from __future__ import annotations

import json
import re
import secrets
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refluid.files.storage import AnyPath, RemotePath
from refluid.ops.core.growing import SHARDS
from refluid.runtime.tables.files.parts import Part, TableFileError
from refluid.runtime.tables.records import RecordForm

FORMAT = 1
_MOST = 64 << 20
_ID = re.compile(r"[0-9a-f]{32}")
_WIDEST = 1 << 24  # weights of a row
_BEGINNING = 8  # numbers


def new_id() -> str:
    """A name for a snapshot that no other has."""
    return secrets.token_hex(16)


def part_name(table: str, snapshot: str, number: int) -> str:
    """The name of a file of rows."""
    return f"{table.rpartition('/')[2]}.{snapshot}.{number}.rows"


@dataclass(frozen=True)
class Base:
    """What a delta follows: the path of a table, relative to the folder of the delta, and the id of its snapshot."""

    path: str
    id: str


@dataclass(frozen=True)
class Manifest:
    """One snapshot of a table.

    Attributes:
      id: its name, which no other snapshot has.
      table: the variable.
      form: of the records.
      optimizer: the type of the op that updates rows; "" if only weights were saved.
      rule: the numbers of the optimizer that rows need to be brought up to date: its constants, "l2" and "l1".
      beginning: how rows begin, as the numbers that kernels read.
      states: the variables of the optimizer's states, by slot.
      parts: the files.
      base: of a delta.
      admits_all: whether an id without a row is as its row would begin; zeros where only some ids get rows.
    """

    id: str
    table: str
    form: RecordForm
    optimizer: str
    rule: Mapping[str, float]
    beginning: tuple[float, ...]
    states: Mapping[str, str]
    parts: tuple[Part, ...]
    base: Base | None = field(default=None)
    admits_all: bool = True

    @property
    def rows(self) -> int:
        """How many rows its files hold."""
        return sum(part.rows for part in self.parts)

    @property
    def gone(self) -> int:
        """How many rows were given up since its base."""
        return sum(part.gone for part in self.parts)

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(part.bytes for part in self.parts)

    @property
    def step(self) -> int:
        """How many updates it includes; of servers that were not equally far, the largest number."""
        return max(part.step for part in self.parts)

    def to_bytes(self) -> bytes:
        """The content of its file."""
        described = {
            "format": FORMAT,
            "kind": "refluid table",
            "id": self.id,
            "table": self.table,
            "form": self.form.describe(),
            "optimizer": self.optimizer,
            "rule": dict(self.rule),
            "beginning": list(self.beginning),
            "states": dict(self.states),
            "shards": SHARDS,
            "base": None if self.base is None else {"path": self.base.path, "id": self.base.id},
            "admits_all": self.admits_all,
            "rows": self.rows,
            "step": self.step,
            "parts": [part.describe() for part in self.parts],
        }
        return json.dumps({**described, "checksum": _checksum(described)}, indent=1).encode()


def is_manifest(path: AnyPath) -> bool:
    """Whether a file begins as a manifest does; files of Fluid begin with four zero bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(1) == b"{"


def read_manifest(path: AnyPath) -> Manifest:
    """Reads the manifest of a table.

    Raises:
      TableFileError: it is missing, damaged, or of another version; the message names the file.
    """
    if not path.is_file():
        raise TableFileError(f"there is no table {path}")
    size = path.size() if isinstance(path, RemotePath) else path.stat().st_size
    if size > _MOST:
        raise TableFileError(f"{path} is not the manifest of a table: it has {size:,} bytes")
    return parse_manifest(path.read_bytes(), str(path))


def parse_manifest(data: bytes, source: str) -> Manifest:
    """Reads the content of a manifest; ``source`` is named in errors."""
    try:
        described = json.loads(data)
        if not isinstance(described, dict) or described.get("kind") != "refluid table":
            raise TableFileError(f"{source} is not the manifest of a table")
        if described["format"] != FORMAT:
            raise TableFileError(f"{source} has format {described['format']}; this version reads format {FORMAT}")
        checksum = described.pop("checksum")
        if _checksum(described) != checksum:
            raise TableFileError(f"{source} is damaged: it does not match its checksum")
        return _from_plain(described)
    except TableFileError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise TableFileError(f"{source} is not a sound manifest: {type(error).__name__}: {error}") from error


def _from_plain(described: Mapping[str, Any]) -> Manifest:
    form, base = described["form"], described["base"]
    if not (0 < _whole(form["width"]) <= _WIDEST and len(form["slots"]) <= 16 and form["has_id"] is True):
        raise ValueError(f"rows cannot have the form {form}")
    if described["shards"] != SHARDS:
        raise ValueError(f"it has {described['shards']} shards, not {SHARDS}")
    parts = tuple(_part(each) for each in described["parts"])
    _check_shards(parts)
    return Manifest(
        _id(described["id"]),
        _text(described["table"]),
        RecordForm.read({**form, "slots": [_text(name) for name in form["slots"]]}),
        _text(described["optimizer"]),
        {_text(name): float(number) for name, number in described["rule"].items()},
        tuple(float(number) for number in _of_length(described["beginning"], _BEGINNING)),
        {_text(slot): _text(name) for slot, name in described["states"].items()},
        parts,
        None if base is None else Base(_text(base["path"]), _id(base["id"])),
        bool(described.get("admits_all", True)),  # older ones do not say
    )


def _part(described: Mapping[str, Any]) -> Part:
    name = _text(described["name"])
    if "/" in name or "\\" in name or "\0" in name or not name.endswith(".rows"):
        raise ValueError(f"{name!r} is not a name for a file of rows")
    numbers = {key: _whole(described[key]) for key in ("start", "end", "rows", "gone", "step", "bytes", "checksum")}
    ids = {key: described[key] for key in ("lowest", "highest")}
    for value in ids.values():
        if value is not None:
            np.int64(_integer(value))
    return Part(name, **numbers, **ids)


def _check_shards(parts: Sequence[Part]) -> None:
    """Every shard is in one file."""
    place = 0
    for part in sorted(parts, key=lambda part: part.start):
        if part.start != place or part.end <= part.start:
            raise ValueError(f"shards {place} to {part.start} are in no file, or in two")
        place = part.end
    if place != SHARDS:
        raise ValueError(f"shards {place} to {SHARDS} are in no file")


def _checksum(described: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(described, sort_keys=True, separators=(",", ":")).encode())


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 4096:
        raise TypeError(f"expected a text, not {value!r:.60}")
    return value


def _id(value: Any) -> str:
    if _ID.fullmatch(_text(value)) is None:
        raise ValueError(f"{value!r} is not the id of a snapshot")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected a whole number, not {value!r:.60}")
    return value


def _whole(value: Any) -> int:
    if not 0 <= _integer(value) < 1 << 63:
        raise ValueError(f"{value} is out of range")
    return value


def _of_length(values: Sequence[Any], length: int) -> Sequence[Any]:
    if len(values) != length:
        raise ValueError(f"expected {length} numbers, not {len(values)}")
    return values
