"""Loading tables from files into memory: the rows of some shards, checked against what a program expects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from refluid.files.storage import AnyPath
from refluid.ops.core.growing import SHARDS
from refluid.runtime.tables.batches import shared_out
from refluid.runtime.tables.files.chain import SavedTable, open_table
from refluid.runtime.tables.files.parts import Part, TableFileError
from refluid.runtime.tables.kernels import layout
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.table import Table

WEIGHTS_ONLY_HINT = "  hint        refluid table merge TABLE OUT --weights-only leaves out what the optimizer kept"


def load_into(table: Table, saved: SavedTable, shards: tuple[int, int]) -> None:
    """Puts the rows of some shards into a table that has none, and goes on after its step.

    Whoever calls it gives up the table if it raises.

    Raises:
      TableFileError: a file is damaged, or the table is another one than the program's.
    """
    check_width(saved, table.form.width, table.form.dtype)
    _check_optimizer(table, saved)
    start, end = shards

    def overlaps(part: Part) -> bool:
        return part.start < end and start < part.end

    for ids, records in saved.records(overlaps):
        chosen = in_shards(ids, shards)
        table.put(ids[chosen], _converted(saved.form, table.form, records[chosen], table.fills))
    try:
        table.resume(saved.manifest.step, saved.past())
    except (ValueError, OverflowError) as error:
        raise TableFileError(f"{saved.path}: {error}") from error
    begin_marks(table, saved.manifest.id if saved.manifest.optimizer else None)


def load_all(table: Table, path: AnyPath) -> None:
    """Replaces all rows of a table by those of a snapshot that a server has made of it for itself."""
    saved = open_table(path)
    check_width(saved, table.form.width, table.form.dtype)
    _check_optimizer(table, saved)
    for ids, records in saved.records():
        table.put(ids, records if table.form.has_id else np.ascontiguousarray(records[:, 2:]))
    table.resume(saved.manifest.step, saved.past())


def load_rows(
    table: Table, rows: Iterable[tuple[np.ndarray, np.ndarray, Mapping[str, np.ndarray]]], shards: tuple[int, int]
) -> None:
    """Puts rows into a table that has none: ids, weights and slots, of which those that are missing begin anew."""
    for ids, weights, slots in rows:
        chosen = in_shards(ids, shards)
        fresh = _fresh_slots(table.form, table.fills, len(chosen))
        found = {**fresh, **{name: value[chosen] for name, value in slots.items()}}
        steps = np.full(len(chosen), table.step, np.int64), np.ones(len(chosen), np.float32)
        table.put(ids[chosen], table.form.packed(ids[chosen], weights[chosen], found, steps))
    begin_marks(table, None)


def begin_marks(table: Table, since: str | None) -> None:
    """From now on, rows that are touched or given up are those of a delta that is based on a snapshot."""
    table.clear_marks(layout.CHANGED)
    table.since[layout.CHANGED] = since
    for segment in table.segments:
        with segment.lock:
            segment.gone[layout.CHANGED] = [] if since is not None else None


def in_shards(ids: np.ndarray, shards: tuple[int, int]) -> np.ndarray:
    """The positions of the ids that belong to a range of shards."""
    if shards == (0, SHARDS):
        return np.arange(len(ids))
    inside = np.zeros(SHARDS, np.int64)
    inside[slice(*shards)] = 1
    return shared_out(ids, inside, 2)[1]


def check_width(saved: SavedTable, width: int, dtype: np.dtype) -> None:
    """Raises if the rows of a table are not as wide as a program's."""
    form = saved.form
    if (form.width, form.dtype) != (width, dtype):
        raise TableFileError(
            f"{saved.path} has rows of {form.width} {form.dtype}; in this program table {saved.manifest.table} has "
            f"rows of {width} {dtype}"
        )


def _check_optimizer(table: Table, saved: SavedTable) -> None:
    was, form = saved.manifest.optimizer, saved.form
    if was and (was, form.slots) != (table.rule.saved_as, table.form.slots):
        slots = [f"{name} ({', '.join(slots) or 'no state'})" for name, slots in
                 ((was, form.slots), (table.rule.saved_as, table.form.slots))]  # fmt: skip
        raise TableFileError(
            f"{saved.path} was trained with {slots[0]}; this program trains it with {slots[1]}\n{WEIGHTS_ONLY_HINT}"
        )


def _converted(source: RecordForm, target: RecordForm, records: np.ndarray, fills: Iterable[float]) -> np.ndarray:
    """Records in another form: of another precision, or with slots that begin anew."""
    if source == target:
        return records
    slots = _fresh_slots(target, fills, len(records))
    slots |= {name: source.slot_of(records, name) for name in source.slots}
    like = source.versions_of(records), source.counts_of(records)
    return target.packed(source.ids_of(records), source.weights_of(records), slots, like)


def _fresh_slots(form: RecordForm, fills: Iterable[float], count: int) -> dict[str, np.ndarray]:
    values = [*fills] or [0.0] * len(form.slots)
    return {
        name: np.full((count, form.width), value, form.dtype) for name, value in zip(form.slots, values, strict=True)
    }
