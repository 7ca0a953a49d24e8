"""Feeds of a dataset: batches that threads prepare while the consumer computes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any

from refluid.datasets.batches import feed_of, split
from refluid.datasets.meter import Meter
from refluid.datasets.records import Records
from refluid.readers.threads import map_in_threads

_BATCHES_AHEAD = 4
_CHUNK = 1 << 16  # records of a dataset in memory that are cut into batches at once


class Feed(dict[str, Any]):
    """The values of a batch by variable; ``files`` are those that its samples come from, where that is known."""

    __slots__ = ("files",)

    def __init__(self, values: dict[str, Any], files: tuple[str, ...] = ()):
        super().__init__(values)
        self.files = files


def feeds_of(
    chunks: Iterable[Records],
    batch_size: int,
    threads: int,
    meter: Meter,
    *,
    skip: int = 0,
    drop_last: bool = False,
    close: Callable[[], None] = lambda: None,
) -> Generator[Feed]:
    """The feeds of a stream of records, a few made ahead.

    Args:
      skip: how many batches to leave out at the beginning.
      close: called when the consumer stops, or at the end; must end ``chunks``, whichever thread waits for them.
    """

    def make(records: Records) -> Feed:
        with meter.timing("batch"):
            return Feed(feed_of(records), records.files)

    def batches() -> Iterator[Records]:
        found = split(chunks, batch_size, drop_last=drop_last)
        left_out = sum(1 for _ in islice(found, skip))
        if left_out < skip:
            raise ValueError(f"{skip} batches are to be left out, but a pass over this dataset has only {left_out}")
        return found

    feeds: Any = map_in_threads(make, batches, max(1, threads), _BATCHES_AHEAD, ordered=True)
    try:
        for feed in feeds:  # noqa: UP028 - when the consumer leaves, the stream must end before its threads are joined
            yield feed
    finally:
        close()
        feeds.close()


def chunks_of(records: Records) -> Iterator[Records]:
    """Records in memory, as a stream."""
    for start in range(0, len(records), _CHUNK):
        yield records[start : start + _CHUNK]
