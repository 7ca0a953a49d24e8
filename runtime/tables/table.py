"""An embedding table of one server: rows with any ids, or those of a part of a table of fixed height.

Batches of different ids are read and updated at once. Rows are spread over segments, each with a lock of its own, by
the hash of their ids and independently of the shards that servers share a table out by: a single shard uses them all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from refluid.runtime.tables.history import History
from refluid.runtime.tables.kernels import layout, merging, optimizers, rows
from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import Beginning, Rule, fills_of, zeros
from refluid.runtime.tables.segment import Segment
from refluid.runtime.tables.snapshot import Snapshot
from refluid.runtime.tables.spans import spans

_SEGMENTS = 4  # a power of two
_AGES = 1 << 16  # how finely rows are told apart by age
_LEAST_ID = int(np.iinfo(np.int64).min)
_INDEX_BYTES = 10  # that the index takes for a row, at most


class _Kernels(NamedTuple):
    """The kernels for rows of one dtype."""

    fetch: Any
    push: Any
    begin: Any
    set_weights: Any
    evict: Any


_KERNELS = {
    np.dtype(np.float32): _Kernels(rows.fetch32, rows.push32, rows.begin_rows32, rows.set_weights32, rows.evict32),
    np.dtype(np.float64): _Kernels(rows.fetch64, rows.push64, rows.begin_rows64, rows.set_weights64, rows.evict64),
}


@dataclass
class Table:
    """The rows of a table that one server holds.

    Args:
      name: of the table.
      form: of its rows.
      rule: how gradients change them.
      beginning: how they begin.
      fills: the initial values of the optimizer's states.
      fixed: the first row and the number of rows, for a part of a table of fixed height.
    """

    name: str
    form: RecordForm
    rule: Rule
    beginning: Beginning = field(default_factory=zeros)
    fills: Sequence[float] = ()
    fixed: tuple[int, int] | None = None
    step: int = 0  # how many updates it has seen
    # The snapshot in files that rows are marked as changed since, of each chain.
    since: dict[int, str | None] = field(default_factory=lambda: dict.fromkeys(layout.CHAINS))
    segments: list[Segment] = field(init=False)

    def __post_init__(self) -> None:
        count = 1 if self.fixed is not None else _SEGMENTS
        self.segments = [Segment(self.form, self.fixed) for _ in range(count)]
        self._numbers = np.arange(count, dtype=np.int64)
        self._beginning, self._fills = self.beginning.numbers(), fills_of(self.fills or [0.0] * len(self.form.slots))
        self._rule = self.rule.numbers()
        self._history = History(self._rule)
        self._stepping = threading.Lock()
        self.copying = threading.Lock()  # held by a snapshot
        self._kernels, self._like = _KERNELS[self.form.dtype], np.empty(0, self.form.dtype)
        if self.fixed is not None:
            self._begin_all()

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    @property
    def bytes(self) -> int:
        """The memory it takes."""
        return sum(segment.bytes for segment in self.segments)

    def read(self, ids: np.ndarray, *, creates: bool = True) -> np.ndarray:
        """The weights of rows, as of now; rows that do not exist yet are created or, on request, only computed."""
        out, history = np.empty((len(ids), self.form.width), self.form.dtype), self._history
        for segment, places, chosen in self._parts(ids):
            with segment.lock:
                segment.run(
                    self._kernels.fetch, chosen, places, out, self._rule, history.rates, history.blocks, history.large,
                    self.step, self._beginning, self._fills, creates,
                )  # fmt: skip
        return out

    def begin_step(self, rate: float) -> int:
        """Begins the next update, with this learning rate; returns its number.

        Raises:
          OverflowError: rows could not say that they have seen it.
        """
        with self._stepping:
            if self.step + 1 >= layout.DEAD:
                raise OverflowError(
                    f"table {self.name} has seen {self.step:,} updates, as many as its rows can count; save it, write "
                    "its weights (refluid table export FROM FOLDER --to lookup_table) and have servers load these"
                )
            self._history.record(self.step + 1, rate)
            self.step += 1
            return self.step

    def update(self, ids: np.ndarray, grads: np.ndarray, number: int, scale: float = 1.0) -> None:
        """Updates rows with gradients, in the step that `begin_step` has begun; ids are different from each other."""
        rule, grads, history = self._rule.copy(), np.ascontiguousarray(grads), self._history
        rule[optimizers.SCALE] *= scale
        for segment, places, chosen in self._parts(ids):
            with segment.lock:
                segment.run(
                    self._kernels.push, chosen, places, grads, rule, history.rates, history.blocks, history.large,
                    number, self._beginning, self._fills, True,
                )  # fmt: skip

    def weights(self, begin: int, end: int) -> np.ndarray:
        """The weights of rows of a table of fixed height, counted from its own first row, as of now."""
        assert self.fixed is not None
        return self.read(np.arange(begin, end, dtype=np.int64) + self.fixed[0])

    def set_weights(self, begin: int, values: np.ndarray) -> None:
        """Replaces the weights of rows of a table of fixed height, counted from its own first row."""
        (segment,) = self.segments
        with segment.lock:
            self._kernels.set_weights(segment.control, begin, np.ascontiguousarray(values))

    def set_all(self, weights: np.ndarray, slots: Mapping[str, np.ndarray]) -> None:
        """Replaces weights and slots of all rows of a table of fixed height."""
        (segment,) = self.segments
        with segment.lock:
            records = segment.records()
            for columns, value in (
                (self.form.columns(None), weights),
                *((self.form.columns(k), v) for k, v in slots.items()),
            ):
                records[:, columns] = np.ascontiguousarray(value, self.form.dtype).view(np.uint32)

    def slot(self, name: str) -> np.ndarray:
        """A state of the optimizer for all rows of a table of fixed height, as of now."""
        (segment,) = self.segments
        self.weights(0, segment.used)  # brings all rows up to date
        with segment.lock:
            return self.form.slot_of(segment.records(), name)

    def start_all_at(self, step: int) -> None:
        """Has all rows of a table of fixed height be up to date with a step."""
        (segment,) = self.segments
        with segment.lock:
            segment.records()[:, self.form.header + layout.VERSION] = step

    def put(self, ids: np.ndarray, records: np.ndarray) -> None:
        """Replaces whole rows, or adds them."""
        for segment, places, chosen in self._parts(ids):
            with segment.lock:
                segment.run(rows.replace, chosen, np.ascontiguousarray(records[places]))

    def admit(self, *, min_count: int = 1, probability: float = 1.0) -> None:
        """Has only some ids get rows: those that chance chooses, by the table's random key, and that were in so many
        updates. Until then they are read as zeros."""
        first, second, *_ = self.beginning.words
        for segment in self.segments:
            segment.admit(round(probability * layout.ALL_CHANCE), first << 31 ^ second, min_count)

    @property
    def admits_all(self) -> bool:
        """Whether every id gets a row with its first update; otherwise ids without rows are read as zeros."""
        control = self.segments[0].control
        return bool(control[layout.CHANCE] == layout.ALL_CHANCE and control[layout.MIN_COUNT] <= 1)

    def counted(self) -> dict[str, np.ndarray]:
        """How often ids without rows were seen, in memory that the next update changes; nothing if all ids get rows."""
        sketches = {str(place): segment.sketch for place, segment in enumerate(self.segments)}
        found = {place: sketch for place, sketch in sketches.items() if sketch is not None}
        left = [int(segment.control[layout.SKETCH_LEFT]) for segment in self.segments]
        return {"left": np.array(left, np.int64), **found} if found else {}

    def count_on(self, counted: Mapping[str, np.ndarray]) -> None:
        """Goes on with what `counted` returned."""
        for place, segment in enumerate(self.segments):
            if segment.sketch is not None:
                segment.sketch[:] = counted[str(place)]
                segment.control[layout.SKETCH_LEFT] = counted["left"][place]

    # Room

    @property
    def row_bytes(self) -> int:
        """The memory that a row takes, with its part of the index."""
        return self.form.bytes + 1 + _INDEX_BYTES

    def count_new(self, ids: np.ndarray) -> int:
        """How many rows an update of these ids would add; ids are different from each other."""
        found = 0
        for segment, _, chosen in self._parts(ids):
            with segment.lock:
                found += rows.count_new(segment.control, chosen)
        return found

    def evict(self, *, before: int = 0, norm: float = 0.0, count: float = 0.0, least: int = _LEAST_ID) -> int:
        """Gives up rows last used before a step, with a smaller norm, or seen less often; returns how many.

        Args:
          least: rows with smaller ids are not given up because of ``before``.
        """
        if self.fixed is not None:
            raise ValueError(f"{self.name} has a fixed number of rows")
        gone = 0
        for segment in self.segments:
            for begin, end in spans(segment.used):
                with segment.lock, segment.noting_gone(begin, end):
                    segment.make_room_to_save(end - begin)
                    gone += self._kernels.evict(segment.control, begin, end, before, least, norm, count, self._like)
        return gone

    def evict_oldest(self, count: int) -> int:
        """Gives up so many rows, those that were last used longest ago; returns how many.

        Of rows of the same age, those with the largest ids: where rows lie in memory is not the same after a restart.
        """
        width, ages = self.step // _AGES + 1, np.zeros(_AGES, np.int64)
        for segment in self.segments:
            for begin, end in spans(segment.used):
                with segment.lock:
                    rows.count_ages(segment.control, begin, end, width, ages)
        last = int(np.searchsorted(np.cumsum(ages), count))  # with the rows of this age there are enough
        gone = self.evict(before=last * width)
        ids = self._ids_before((last + 1) * width)
        left = min(count - gone, len(ids))
        return gone + (self.evict(before=(last + 1) * width, least=np.partition(ids, -left)[-left]) if left else 0)

    def _ids_before(self, step: int) -> np.ndarray:
        """The ids of rows that were last used before a step."""
        found = [np.empty(0, np.int64)]
        for segment in self.segments:
            for begin, end in spans(segment.used):
                with segment.lock:
                    records = segment.records()[begin:end]
                    found.append(self.form.ids_of(records[self.form.versions_of(records) < step]))
        return np.concatenate(found)

    def decay_counts(self, factor: float) -> None:
        """Multiplies all counts, so that what was seen long ago counts less."""
        self.since[layout.UNSAVED] = None  # rows are not marked: the next snapshot for a restart has all of them
        for segment in self.segments:
            for begin, end in spans(segment.used):
                with segment.lock:
                    rows.decay_counts(segment.control, begin, end, np.float32(factor))

    def records(self, mark: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids and records of all rows as they are now, or of those with a mark, which they lose; a part at a time.

        Rows may be used and changed meanwhile: what was changed since is returned as it was.
        """
        with self.snapshot(mark, clears=mark) as snapshot:
            yield from snapshot.records()

    def snapshot(self, mark: int = 0, *, clears: int = 0) -> Snapshot:
        """All rows as they are now, or those with a mark; they lose the marks that it ``clears``.

        While there is one, another one waits.
        """
        return Snapshot(self, mark, clears)

    def id_range(self) -> tuple[int | None, int | None]:
        """The smallest and the largest id of its rows."""
        found: list[int] = []
        for segment in self.segments:
            for begin, end in spans(segment.used):
                with segment.lock:
                    records = segment.records()[begin:end]
                    ids = self.form.ids_of(records[self.form.versions_of(records) != layout.DEAD])
                    found += [int(ids.min()), int(ids.max())] if len(ids) else []
        return min(found, default=None), max(found, default=None)

    def clear_marks(self, marks: int) -> None:
        """Takes marks from all rows."""
        for segment in self.segments:
            with segment.lock:
                segment.clear_marks(marks)

    def past(self) -> np.ndarray:
        """What rows that are not up to date need to know of the steps so far, as numbers."""
        with self._stepping:
            return self._history.numbers() if self.rule.drifts else np.empty(0)

    def resume(self, step: int, past: np.ndarray) -> None:
        """Goes on after a step, with what `past` returned then."""
        with self._stepping:
            self.step = step
            if len(past):
                self._history.read(past)

    def _parts(self, ids: np.ndarray) -> Iterator[tuple[Segment, np.ndarray, np.ndarray]]:
        """Segments, with the positions and values of the ids that belong to each."""
        if len(self.segments) == 1:
            yield self.segments[0], np.arange(len(ids), dtype=np.int64), np.ascontiguousarray(ids)
            return
        order, grouped = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        bounds = np.empty(len(self.segments) + 1, np.int64)
        merging.partition(np.ascontiguousarray(ids), merging.SEGMENT_SHIFT, self._numbers, order, grouped, bounds)
        for segment, begin, end in zip(self.segments, bounds[:-1], bounds[1:], strict=True):
            if end > begin:
                yield segment, order[begin:end], grouped[begin:end]

    def _begin_all(self) -> None:
        """Fills the rows of a table of fixed height; memory of zeros needs no filling."""
        (segment,) = self.segments
        if self.beginning != zeros() or self._fills.any():
            self._kernels.begin(segment.control, 0, segment.used, self._beginning, self._fills, self._like)
