"""Writing tables to files: the part of one server, a manifest, and a whole table from records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from refluid.faults import fault_point
from refluid.files.storage import AnyPath, RemotePath
from refluid.files.writing import atomic_write
from refluid.ops.core.growing import SHARDS
from refluid.runtime.tables.files.chain import SavedTable
from refluid.runtime.tables.files.manifest import Base, Manifest, new_id, part_name, read_manifest
from refluid.runtime.tables.files.parts import GONE, PAST, Part, PartWriter, TableFileError
from refluid.runtime.tables.files.weights import UpToDate, up_to_date, without_slots
from refluid.runtime.tables.kernels import layout
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Rule
from refluid.runtime.tables.snapshot import Snapshot
from refluid.runtime.tables.table import Table


@dataclass(frozen=True)
class PartOrder:
    """What a server is asked to write of a table.

    Attributes:
      folder: where to.
      snapshot: its id.
      number: of this part.
      base: the id of the snapshot since which rows were touched; "" for all rows.
      weights_only: leaves out what the optimizer keeps.
      chain: the mark of the snapshots that this one follows and is followed by.
    """

    folder: AnyPath
    snapshot: str
    number: int
    base: str = ""
    weights_only: bool = False
    chain: int = layout.CHANGED


class PartSnapshot:
    """The rows of one server for a snapshot in files: fixed when it is made, written afterwards.

    Args:
      shards: the first shard that the server holds, and the one after the last.

    Raises:
      ValueError: what was touched since the base is not known.
    """

    def __init__(self, table: Table, variable: str, shards: tuple[int, int], order: PartOrder):
        self._table, self._variable, self._shards, self.order = table, variable, shards, order
        if order.base and not has_changes_since(table, order.base, order.chain):
            raise ValueError(
                f"the rows of {variable} that were touched since snapshot {order.base} are not known here: another "
                "one was begun since, or more rows were given up than are left; save the whole table"
            )
        clears = 0 if order.weights_only else order.chain
        self._snapshot: Snapshot = table.snapshot(order.chain if order.base else 0, clears=clears)

    def write(self) -> Part:
        """Writes the file; the table may be used meanwhile."""
        order, table, snapshot = self.order, self._table, self._snapshot
        name, form = part_name(self._variable, order.snapshot, order.number), table.form
        with snapshot, atomic_write(order.folder / name) as stream:
            writer = PartWriter(stream, order.snapshot)
            parts = snapshot.records()
            if order.weights_only:
                current = UpToDate(form, table.rule, snapshot.step, snapshot.past)
                form = without_slots(form)
                parts = ((ids, current.without_slots(ids, records)) for ids, records in parts)
            else:
                writer.write_numbers(PAST, snapshot.past)
            if not form.has_id:
                form, parts = replace(form, has_id=True), ((i, table.form.with_ids(i, r)) for i, r in parts)
            if order.base:
                assert snapshot.gone is not None
                writer.write_numbers(GONE, snapshot.gone)
            writer.write_rows(form, parts)
            part = writer.finish(name, *self._shards, snapshot.step)
        if not order.weights_only:
            table.since[order.chain] = order.snapshot
        return part

    def close(self) -> None:
        """Ends it without a file."""
        self._snapshot.close()


def has_changes_since(table: Table, snapshot: str, chain: int) -> bool:
    """Whether the rows that were touched and given up since a snapshot are known."""
    return table.since[chain] == snapshot and all(segment.gone[chain] is not None for segment in table.segments)


def describe_table(table: Table, states: Mapping[str, str], *, weights_only: bool) -> dict[str, Any]:
    """What a manifest says of a table, as plain data, apart from its files."""
    form = replace(without_slots(table.form) if weights_only else table.form, has_id=True)
    return {
        "form": form.describe(),
        "optimizer": "" if weights_only else table.rule.saved_as,
        "rule": {} if weights_only else _numbers_of(table.rule),
        "beginning": table.beginning.numbers().tolist(),
        "admits_all": table.admits_all,
        "states": {} if weights_only else dict(states),
    }


def _numbers_of(rule: Rule) -> dict[str, float]:
    names = {name: default for name, default in rule.form.constants if name}
    if rule.form.lazy:
        names[rule.form.lazy] = 0.0
    found = {name: float(rule.attrs.get(name, default)) for name, default in names.items()}
    return {**found, "l2": rule.l2, "l1": rule.l1}


def manifest_of(
    variable: str, snapshot: str, described: Mapping[str, Any], parts: Sequence[Part], base: Base | None = None
) -> Manifest:
    """The manifest of parts that servers have written, which describe the table as `describe_table` does."""
    form, beginning = RecordForm.read(described["form"]), tuple(described["beginning"])
    optimizer, rule, states = (described[name] for name in ("optimizer", "rule", "states"))
    admits_all = bool(described["admits_all"])
    return Manifest(snapshot, variable, form, optimizer, rule, beginning, states, tuple(parts), base, admits_all)


def check_parts(folder: AnyPath, parts: Iterable[tuple[str, Part]]) -> None:
    """Raises if a file that a server has written is not there: each names the server and what it wrote."""
    for server, part in parts:
        path = folder / part.name
        size = (path.size() if isinstance(path, RemotePath) else path.stat().st_size) if path.is_file() else -1
        if size != part.bytes:
            raise TableFileError(
                f"server {server} wrote {part.name}, but {folder} does not have it here; a job with tables that grow "
                "saves to a folder that all of its processes share: on a network file system, hdfs:// or s3://"
            )


def parts_before(path: AnyPath) -> list[AnyPath]:
    """The files of the table that is about to be replaced."""
    try:
        return [path.parent / part.name for part in read_manifest(path).parts]
    except TableFileError:
        return []


def remove_parts(parts: Iterable[AnyPath]) -> None:
    """Removes the files of a table that was replaced."""
    for path in parts:
        fault_point("remove")
        if isinstance(path, RemotePath):
            path.remove()
        else:
            path.unlink(missing_ok=True)


def write_table(saved: SavedTable, path: AnyPath, *, weights_only: bool = False) -> Manifest:
    """Writes a table, with the deltas that belong to it, as one whole snapshot with one file."""
    if any(_same(path, each.path) for each in saved.snapshots):
        raise ValueError(f"{path} is a part of what is read; choose another place to write")
    snapshot, old = new_id(), parts_before(path)
    name, form, parts = part_name(path.name, snapshot, 0), saved.form, saved.records()
    if weights_only:
        current, form = up_to_date(saved), without_slots(form)
        parts = ((ids, current.without_slots(ids, records)) for ids, records in parts)
    with atomic_write(path.parent / name) as stream:
        writer = PartWriter(stream, snapshot)
        if not weights_only:
            writer.write_numbers(PAST, saved.past())
        writer.write_rows(form, parts)
        part = writer.finish(name, 0, SHARDS, saved.manifest.step)
    made = replace(saved.manifest, id=snapshot, form=form, parts=(part,), base=None)
    if weights_only:
        made = replace(made, optimizer="", rule={}, states={})
    with atomic_write(path) as stream:
        stream.write(made.to_bytes())
    remove_parts(old)
    return made


def _same(one: AnyPath, other: AnyPath) -> bool:
    if isinstance(one, RemotePath) or isinstance(other, RemotePath):
        return str(one) == str(other)
    return os.path.realpath(one) == os.path.realpath(other)
