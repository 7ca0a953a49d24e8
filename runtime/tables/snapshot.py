"""The rows of a table at one moment, copied while the table is used and changed."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from refluid.runtime.tables.kernels import layout, rows
from refluid.runtime.tables.segment import Segment
from refluid.runtime.tables.spans import spans


class Snapshot:
    """All rows of a table, or those with a mark, as they are when it is made. It is copied once, and closed.

    Args:
      table: a `Table`, whose module uses this one.
      mark: only rows that have it; 0 for all.
      clears: the mark of a chain of snapshots that this one belongs to, which rows lose when they are copied; or 0.

    Attributes:
      step: how many updates the rows include.
      past: what `Table.past` was.
      gone: the ids of rows that were given up since the last snapshot of the chain; None if they are not known.
    """

    def __init__(self, table: Any, mark: int, clears: int):
        table.copying.acquire()
        self._table, self._mark, self._clears = table, mark, clears
        self._open, self._closed = list(table.segments), False
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        table, clears = self._table, self._clears
        self.step, self.past = table.step, table.past()
        gone: list[np.ndarray] | None = []
        if clears:
            table.since[clears] = None  # until all of it is in files
        for segment in table.segments:
            with segment.lock:
                segment.freeze(self._mark)
                known = segment.gone.get(clears or self._mark)
                gone = None if gone is None or known is None else gone + known
                if clears:
                    segment.gone[clears] = []
        self.gone = None if gone is None else np.concatenate([*gone, np.empty(0, np.int64)])

    def records(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids and records, a part at a time."""
        while self._open:
            yield from self._records_of(self._open[0])
            self._end(self._open.pop(0))

    def close(self) -> None:
        """Ends it; what was not copied is lost. Calling it again does nothing."""
        while self._open:
            self._end(self._open.pop())
        if not self._closed:
            self._closed = True
            self._table.copying.release()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _records_of(self, segment: Segment) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        control, form = segment.control, self._table.form
        for begin, end in spans(int(control[layout.FROZEN])):
            records = np.empty((end - begin, form.words), np.uint32)
            numbers = np.empty(end - begin, np.int64)
            with segment.lock:
                count = rows.copy_out(control, begin, end, self._mark, self._clears, records, numbers)
                control[layout.COPIED] = end
                saved = segment.saved()
            yield self._ids(records[:count], numbers[:count]), records[:count]
            if len(saved[0]):
                yield self._of_saved(*saved)

    def _end(self, segment: Segment) -> None:
        with segment.lock:
            segment.thaw()

    def _of_saved(self, numbers: np.ndarray, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        alive = self._table.form.versions_of(records) != layout.DEAD
        return self._ids(records[alive], numbers[alive]), records[alive]

    def _ids(self, records: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        fixed = self._table.fixed
        return self._table.form.ids_of(records) if fixed is None else numbers + fixed[0]
