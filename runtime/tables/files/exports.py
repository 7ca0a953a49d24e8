"""Tables for other programs: (id, row) as Parquet or Arrow, as .npz or safetensors, or as real Fluid's lookup table.

Rows are written as they are read, so that a table may be larger than memory. The first two formats need pyarrow. The
others hold one array after another: the files of the table are read once for each.
"""

from __future__ import annotations

import importlib
import json
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from refluid.files.storage import AnyPath
from refluid.files.tensors import write_rows_in_parts
from refluid.files.writing import atomic_write
from refluid.runtime.tables.files.chain import SavedTable
from refluid.runtime.tables.files.weights import up_to_date
from refluid.runtime.tables.records import RecordForm


@dataclass(frozen=True)
class Column:
    """One array of an export: a number for each row, or ``width`` of them."""

    name: str
    dtype: np.dtype
    width: int
    of: Callable[[np.ndarray], np.ndarray]  # records

    def shape(self, rows: int) -> tuple[int, ...]:
        return (rows, self.width) if self.width else (rows,)


def columns_of(form: RecordForm, *, slots: bool) -> list[Column]:
    """Ids and weights; with ``slots``, also what the optimizer keeps, and how often each row was updated."""
    found = [
        Column("id", np.dtype(np.int64), 0, form.ids_of),
        Column("weights", form.dtype, form.width, form.weights_of),
    ]
    if slots:
        found += [Column(name, form.dtype, form.width, partial(_slot_of, form, name)) for name in form.slots]
        found.append(Column("count", np.dtype(np.float32), 0, form.counts_of))
    return found


def _slot_of(form: RecordForm, name: str, records: np.ndarray) -> np.ndarray:
    return form.slot_of(records, name)


def _records(saved: SavedTable) -> Iterator[np.ndarray]:
    current = up_to_date(saved)
    return (current.records(ids, records) for ids, records in saved.records() if len(ids))


def export(saved: SavedTable, path: AnyPath, form: str, *, slots: bool = False) -> int:
    """Writes a table to one file; returns the number of its rows.

    Args:
      form: one of `FORMS`.
      slots: also what the optimizer keeps; not in a lookup table of Fluid.
    """
    if form not in FORMS:
        raise ValueError(f"{path}: tables are exported as {', '.join(FORMS)}, not as {form}")
    if slots and form == "lookup_table":
        raise ValueError("a lookup table of Fluid has no place for what the optimizer keeps; export without slots")
    write = FORMS[form]
    with atomic_write(path) as stream:
        return write(stream, saved, columns_of(saved.form, slots=slots))


def count_rows(saved: SavedTable) -> int:
    """How many rows a table has; with deltas, its ids are read to know."""
    if len(saved.snapshots) == 1:
        return saved.manifest.rows
    return sum(len(ids) for ids, _ in saved.records())


def _write_parquet(stream: BinaryIO, saved: SavedTable, columns: Sequence[Column]) -> int:
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    with parquet.ParquetWriter(stream, _schema(arrow, saved, columns)) as writer:
        return _write_batches(arrow, saved, columns, writer.write_batch)


def _write_arrow(stream: BinaryIO, saved: SavedTable, columns: Sequence[Column]) -> int:
    arrow = _pyarrow("pyarrow")
    with arrow.ipc.new_file(stream, _schema(arrow, saved, columns)) as writer:
        return _write_batches(arrow, saved, columns, writer.write_batch)


def _schema(arrow: Any, saved: SavedTable, columns: Sequence[Column]) -> Any:
    fields = []
    for column in columns:
        kind = arrow.from_numpy_dtype(column.dtype)
        fields.append((column.name, arrow.list_(kind, column.width) if column.width else kind))
    return arrow.schema(fields, metadata={"table": saved.manifest.table, "step": str(saved.manifest.step)})


def _write_batches(arrow: Any, saved: SavedTable, columns: Sequence[Column], write: Callable[[Any], None]) -> int:
    schema, rows = _schema(arrow, saved, columns), 0
    for records in _records(saved):
        arrays = []
        for column in columns:
            flat = arrow.array(np.ascontiguousarray(column.of(records)).reshape(-1))
            arrays.append(arrow.FixedSizeListArray.from_arrays(flat, column.width) if column.width else flat)
        write(arrow.record_batch(arrays, schema=schema))
        rows += len(records)
    return rows


def _write_npz(stream: BinaryIO, saved: SavedTable, columns: Sequence[Column]) -> int:
    rows = count_rows(saved)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for column in columns:
            described = {"descr": column.dtype.str, "fortran_order": False, "shape": column.shape(rows)}
            with archive.open(f"{column.name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array_header_2_0(entry, described)
                _write_column(entry, saved, column)
    return rows


def _write_safetensors(stream: BinaryIO, saved: SavedTable, columns: Sequence[Column]) -> int:
    rows, place = count_rows(saved), 0
    kinds = {"float32": "F32", "float64": "F64", "int64": "I64"}
    described: dict[str, Any] = {
        "__metadata__": {"table": saved.manifest.table, "step": str(saved.manifest.step), "format": "np"}
    }
    for column in columns:
        end = place + rows * max(1, column.width) * column.dtype.itemsize
        described[column.name] = {
            "dtype": kinds[column.dtype.name],
            "shape": column.shape(rows),
            "data_offsets": [place, end],
        }
        place = end
    header = json.dumps(described).encode()
    header += b" " * (-len(header) % 8)
    stream.write(struct.pack("<Q", len(header)) + header)
    for column in columns:
        _write_column(stream, saved, column)
    return rows


def _write_lookup_table(stream: BinaryIO, saved: SavedTable, columns: Sequence[Column]) -> int:
    """Selected rows, as the servers of real Fluid write them to the folder ``__lookup_table__``."""
    rows, like = count_rows(saved), np.empty((0, saved.form.width), saved.form.dtype)
    write_rows_in_parts(stream, rows, height_of(saved), like, lambda: rows_of(saved))
    return rows


def height_of(saved: SavedTable) -> int:
    """One more than the highest id that a table has, or had."""
    parts = (part for each in saved.snapshots for part in each.manifest.parts)
    return min(max((part.highest or 0 for part in parts), default=0) + 1, 2**63 - 1)


def _write_column(stream: Any, saved: SavedTable, column: Column) -> None:
    for records in _records(saved):
        stream.write(np.ascontiguousarray(column.of(records)).reshape(-1).view(np.uint8).data)


def _pyarrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError("Parquet and Arrow files need the package pyarrow: pip install pyarrow") from error


FORMS: dict[str, Callable[[BinaryIO, SavedTable, Sequence[Column]], int]] = {
    "parquet": _write_parquet,
    "arrow": _write_arrow,
    "npz": _write_npz,
    "safetensors": _write_safetensors,
    "lookup_table": _write_lookup_table,
}


def form_of(path: AnyPath) -> str:
    """The format that the end of a file's name says."""
    ends = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".npz": "npz", ".safetensors": "safetensors"}
    end = "." + path.name.rpartition(".")[2]
    if end not in ends:
        raise ValueError(f"{path}: the name does not say how to write it; end it with {', '.join(ends)}, or pass --to")
    return ends[end]


def rows_of(saved: SavedTable, wanted: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ids and weights, a part at a time; those of ``wanted``, which is sorted, or all."""
    current = up_to_date(saved)
    for ids, records in saved.records():
        if wanted is not None:
            chosen = np.isin(ids, wanted)
            ids, records = ids[chosen], records[chosen]
        if len(ids):
            yield ids, current.weights(ids, records)
