"""Parquet and Arrow files as the source of a dataset: a column for each variable, by name.

A sequence is a list column. A dense variable is a column of numbers, or of lists of as many numbers as its shape has.
Columns become records without Python code for each row. pyarrow is an extra.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from refluid.datasets.columns import numbers_of
from refluid.datasets.meter import Meter
from refluid.datasets.records import Records
from refluid.datasets.schema import Schema
from refluid.datasets.sources import AnySource, Download, open_stream
from refluid.errors import ColumnError

PARQUET, ARROW = ".parquet", ".arrow"
_ROWS = 8192  # that become records at once
_LONGEST_COUNT = 5  # bytes of a count in a record, at most


def is_columnar(source: AnySource) -> bool:
    """Whether a file has columns, judged by its name."""
    return source.name.endswith((PARQUET, ARROW))


class ColumnFiles:
    """Reads Parquet and Arrow files, in any number of threads.

    Args:
      drop_zeros: leave zeros out of sequences, as real Fluid does with data in memory.
    """

    def __init__(self, schema: Schema, *, drop_zeros: bool = False):
        self._schema, self._drop_zeros = schema, drop_zeros
        self._names = [slot.name for slot in schema.slots]

    def read(self, source: AnySource, meter: Meter) -> Generator[Records]:
        """The records of a file, chunk by chunk."""
        if self._schema.has_line_id:
            raise ValueError(
                f"{source}: rows have no ids, which set_merge_by_lineid and parse_ins_id need; use text files"
            )
        first_row = 0
        with closing(_tables(source, self._names)) as tables:
            while True:
                with meter.timing("read"):
                    table = next(tables, None)
                if table is None:
                    return
                with meter.timing("parse"):
                    records = self._records(table, str(source), first_row)
                first_row += table.num_rows
                yield records

    def _records(self, table: Any, file: str, first_row: int) -> Records:
        from refluid.datasets.kernels import columns as kernels  # loads numba: slow

        columns = []
        for slot in self._schema.slots:
            numbers = numbers_of(table.column(slot.name), slot, file, first_row)
            columns.append(numbers.without_zeros() if self._drop_zeros and not slot.dense else numbers)
        size = sum(column.values.nbytes for column in columns) + table.num_rows * len(columns) * _LONGEST_COUNT
        space, places = np.empty(size, np.uint8), np.empty(table.num_rows, np.int64)
        end = kernels.pack(
            np.array([column.values.ctypes.data for column in columns]),
            np.stack([column.offsets for column in columns]),
            self._schema.kinds,
            space.ctypes.data,
            places,
        )
        block = space[: end - space.ctypes.data].copy()
        return Records(self._schema, places + (block.ctypes.data - space.ctypes.data), (block,))


def _tables(source: AnySource, names: Sequence[str]) -> Generator[Any]:
    """These columns of a file, some rows after the other."""
    arrow = _import_arrow(source)
    with _open(source) as stream, arrow.PythonFile(stream, "r") as file:
        try:
            known, tables = (_open_parquet if source.name.endswith(PARQUET) else _open_arrow)(arrow, file, names)
        except arrow.ArrowInvalid as problem:
            raise ColumnError(str(source), "", f"not a file of this kind: {problem}") from None
        for name in names:
            if name not in known:
                raise ColumnError(str(source), name, f"there is no such column; there are {', '.join(known) or 'none'}")
        yield from tables


def _open(source: AnySource) -> Any:
    if not isinstance(source, Download):
        return source.open("rb")
    with closing(open_stream(source)) as stream:
        return io.BytesIO(stream.read())  # the end of the file says where its columns are


def _open_parquet(arrow: Any, file: Any, names: Sequence[str]) -> tuple[list[str], Iterator[Any]]:
    import pyarrow.parquet  # pyright: ignore[reportMissingImports]

    opened = pyarrow.parquet.ParquetFile(file)
    # Without threads: each file of a dataset has one of its own.
    return opened.schema_arrow.names, opened.iter_batches(_ROWS, columns=list(names), use_threads=False)


def _open_arrow(arrow: Any, file: Any, names: Sequence[str]) -> tuple[list[str], Iterator[Any]]:
    try:
        opened = arrow.ipc.open_file(file)
        batches: Callable[[], Iterator[Any]] = lambda: map(opened.get_batch, range(opened.num_record_batches))  # noqa: E731
    except arrow.ArrowInvalid:  # Arrow has another format for streams, with the same suffix
        file.seek(0)
        opened = arrow.ipc.open_stream(file)
        batches = opened.__iter__

    def tables() -> Iterator[Any]:
        for batch in batches():
            chosen = batch.select(list(names))
            yield from (chosen.slice(start, _ROWS) for start in range(0, chosen.num_rows, _ROWS))

    return opened.schema.names, tables()


def _import_arrow(source: AnySource) -> Any:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            f"{source}: reading Parquet and Arrow files needs the package pyarrow: pip install pyarrow, or refluid "
            "with its extra [parquet]"
        ) from error
    return pyarrow
