"""A segment: a part of a table's rows with memory, index and lock of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from refluid.runtime.tables.kernels import layout
from refluid.runtime.tables.kernels.admission import COUNTERS_PER_COUNT
from refluid.runtime.tables.kernels.index import migrate
from refluid.runtime.tables.memory import Mapping
from refluid.runtime.tables.records import PRECISIONS, RecordForm

_FIRST_ROWS = 1024
_FULLEST = 0.8  # the share of the index that may be used; kernels know it as well
_COUNTERS = 1 << 24  # bytes: counts of ids that have no rows yet
_EMPTIEST = 4096  # entries that are moved to a new index with every batch, at least


class Segment:
    """Some rows of a table. Whoever reads or changes them holds ``lock``.

    Args:
      form: of the rows.
      fixed: the first row and the number of rows of a table of fixed height; None for rows with any ids.
    """

    def __init__(self, form: RecordForm, fixed: tuple[int, int] | None = None):
        self.form, self.lock = form, threading.Lock()
        self.control = np.zeros(layout.CONTROL_SIZE, np.int64)
        first, rows = fixed or (0, _FIRST_ROWS)
        self._records, self._marks = Mapping(rows * form.bytes), Mapping(rows)
        self._index: Mapping | None = None
        self._old_index: Mapping | None = None
        self._saved: Mapping | None = None
        self._sketch: Mapping | None = None
        # Ids of rows given up since the last snapshot of each chain, if that matters.
        self.gone: dict[int, list[np.ndarray] | None] = dict.fromkeys(layout.CHAINS)
        control = self.control
        control[layout.WORDS], control[layout.HEADER] = form.words, form.header
        control[layout.WIDTH], control[layout.SLOTS] = form.width, len(form.slots)
        control[layout.PRECISION] = PRECISIONS[form.precision]
        control[layout.CHANCE] = layout.ALL_CHANCE
        if fixed is None:
            self._index = Mapping(4 * 2 * _FIRST_ROWS)
            self._show_index()
        else:
            control[layout.FIRST], control[layout.USED] = first, rows
        self._show_records()

    def admit(self, chance: int, key: int, min_count: int) -> None:
        """Has only some ids get rows: ``chance`` of 2^32, chosen by a key, and those in ``min_count`` updates."""
        control = self.control
        control[layout.CHANCE], control[layout.CHANCE_KEY], control[layout.MIN_COUNT] = chance, key, min_count
        if min_count > 1:
            self._sketch = Mapping(_COUNTERS)
            control[layout.SKETCH], control[layout.SKETCH_MASK] = self._sketch.address, _COUNTERS - 1
            control[layout.SKETCH_LEFT] = _COUNTERS // COUNTERS_PER_COUNT

    @property
    def sketch(self) -> np.ndarray | None:
        """How often ids without rows were seen, as far as that is counted; the memory of the segment."""
        return None if self._sketch is None else self._sketch.as_array(np.uint8)

    def __len__(self) -> int:
        return int(self.control[layout.USED] - self.control[layout.FREED])

    @property
    def used(self) -> int:
        """How many records there have been; rows are among the first so many."""
        return int(self.control[layout.USED])

    @property
    def bytes(self) -> int:
        """The memory that rows, index and counts take; what is only reserved does not count."""
        others = (self._index, self._old_index, self._sketch)
        return self.used * (self.form.bytes + 1) + sum(each.size for each in others if each is not None)

    def records(self) -> np.ndarray:
        """All records, as words in the memory of the segment; to be dropped before the lock is."""
        words = self._records.as_array(np.uint32)[: self.used * self.form.words]
        return words.reshape(self.used, self.form.words)

    def run(self, kernel: Any, ids: np.ndarray, *arguments: Any) -> None:
        """Calls a kernel that may run out of room, as often as it needs to be done with all ids; with the lock held."""
        done, count = 0, len(ids)
        self._make_progress(count)
        while True:
            done = kernel(self.control, ids, *arguments, done)
            if done == count:
                return
            self.make_room()

    def make_room(self) -> None:
        """Makes room for at least one more row, and one more saved record."""
        control = self.control
        if control[layout.FROZEN] and control[layout.SAVED_USED] == control[layout.SAVED_CAPACITY]:
            self._grow_saved()
        if control[layout.USED] == control[layout.CAPACITY] and not control[layout.FREE]:
            self._grow_records()
        if self._is_full():
            self._renew_index()

    def make_room_to_save(self, count: int) -> None:
        """Makes room for so many saved records, if there is a snapshot."""
        control = self.control
        while control[layout.FROZEN] and control[layout.SAVED_CAPACITY] - control[layout.SAVED_USED] < count:
            self._grow_saved()

    # Records

    def _grow_records(self) -> None:
        rows = min(2 * int(self.control[layout.CAPACITY]), layout.MOST_ROWS)
        if rows == self.control[layout.CAPACITY]:
            raise MemoryError(f"a segment of a table holds {layout.MOST_ROWS:,} rows at most; use more segments")
        self._records.grow(rows * self.form.bytes)
        self._marks.grow(rows)
        self._show_records(rows)

    def _show_records(self, rows: int | None = None) -> None:
        control = self.control
        control[layout.RECORDS], control[layout.MARKS] = self._records.address, self._marks.address
        control[layout.CAPACITY] = self._records.size // self.form.bytes if rows is None else rows

    # Index

    def _is_full(self) -> bool:
        if self._index is None:
            return False
        entries = self.control[layout.USED] + self.control[layout.STALE]
        return entries + 1 > _FULLEST * (self.control[layout.INDEX_MASK] + 1)

    def _renew_index(self) -> None:
        """Begins to replace the index: by a larger one or, if many entries are stale, by one of the same size."""
        assert self._index is not None
        while self._old_index is not None:
            self._make_progress(1 << 20)
        size = self._index.size
        if self.control[layout.USED] > 0.5 * _FULLEST * size // 4:
            size *= 2
        self._old_index, self._index = self._index, Mapping(size)
        control = self.control
        control[layout.OLD_INDEX], control[layout.OLD_MASK] = self._old_index.address, self._old_index.size // 4 - 1
        control[layout.MIGRATED] = control[layout.STALE] = 0
        self._show_index()

    def _show_index(self) -> None:
        assert self._index is not None
        self.control[layout.INDEX], self.control[layout.INDEX_MASK] = self._index.address, self._index.size // 4 - 1

    def _make_progress(self, count: int) -> None:
        if self._old_index is None:
            if self._is_full():
                self._renew_index()
            return
        # Before the new index is full in turn, all of the old one must have been moved.
        if migrate(self.control, max(_EMPTIEST, 8 * count)) == 0:
            self.control[layout.OLD_INDEX] = 0
            self._old_index = None

    # Snapshots

    def freeze(self, mark: int = 0) -> int:
        """Begins a snapshot of all rows as they are now, or of those with a mark; returns the number of records."""
        self.control[layout.WANTED] = mark
        self._saved = Mapping(_FIRST_ROWS * self._saved_bytes)
        self._show_saved()
        self.control[layout.COPIED] = self.control[layout.SAVED_USED] = 0
        self.control[layout.FROZEN] = self.control[layout.USED]
        return self.used

    def saved(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and records of rows changed after `freeze` and not copied before, as they were; forgets them."""
        assert self._saved is not None
        count, words = int(self.control[layout.SAVED_USED]), self.form.words + 1
        found = self._saved.as_array(np.uint32)[: count * words].reshape(count, words)
        self.control[layout.SAVED_USED] = 0
        return found[:, -1].astype(np.int64), np.array(found[:, :-1])

    @property
    def _saved_bytes(self) -> int:
        return self.form.bytes + 4  # with its number

    def thaw(self) -> None:
        """Ends a snapshot, also one that has not copied all records."""
        if self.control[layout.COPIED] < self.control[layout.FROZEN]:
            left = slice(int(self.control[layout.COPIED]), int(self.control[layout.FROZEN]))
            self._marks.as_array(np.uint8)[left] &= 255 - layout.IS_SAVED
        self.control[layout.FROZEN] = 0
        self._saved = None

    def clear_marks(self, marks: int) -> None:
        """Takes marks from all rows."""
        self._marks.as_array(np.uint8)[: self.used] &= 255 - marks

    @contextmanager
    def noting_gone(self, begin: int, end: int) -> Iterator[None]:
        """Remembers the ids of the records from ``begin`` to ``end`` that are given up meanwhile, for the next delta.

        With the lock held. Once more rows have gone than are left, a whole snapshot is smaller: it stops.
        """
        if all(gone is None for gone in self.gone.values()):
            yield
            return
        version = self.form.header + layout.VERSION
        before = self.records()[begin:end, version] != layout.DEAD
        yield
        records = self.records()[begin:end]
        died = before & (records[:, version] == layout.DEAD)
        for chain, gone in self.gone.items():
            if gone is not None and died.any():
                gone.append(self.form.ids_of(records[died]))
                if sum(map(len, gone)) > max(len(self), 1 << 16):
                    self.gone[chain] = None

    def _grow_saved(self) -> None:
        assert self._saved is not None
        self._saved.grow(2 * self._saved.size)
        self._show_saved()

    def _show_saved(self) -> None:
        assert self._saved is not None
        self.control[layout.SAVED] = self._saved.address
        self.control[layout.SAVED_CAPACITY] = self._saved.size // self._saved_bytes
