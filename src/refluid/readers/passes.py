"""Passes over a loader that a Python loop iterates over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from refluid.readers.position import Position
from refluid.readers.reader import Batch
from refluid.readers.sources import Source
from refluid.readers.workers import read_ahead_of


class Pass:
    """Iterates over the batches of one pass, read ahead in a thread or a worker process.

    It ends at the last batch, at an error, when it is closed, and when it is forgotten, as after a ``break``.

    Args:
      position: where the pass begins; counts steps.
      group: how many batches make a step, one for each place.
      drop_last: drop the batches of a last step that are fewer.
      form: what to make of the batches of a step.
    """

    def __init__(
        self,
        source: Source,
        capacity: int,
        position: Position,
        *,
        group: int,
        drop_last: bool,
        in_worker: bool,
        form: Callable[[Sequence[Batch]], Any],
    ):
        self._position = position
        self._ahead = read_ahead_of(source, capacity, skip=group * position.begin(), in_worker=in_worker)
        self._group, self._drop_last, self._form = group, drop_last, form
        self._open = True

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        if not self._open:
            raise StopIteration
        try:
            batches = self._take()
            if batches is None:
                self._position.ended()
                raise StopIteration
            self._position.took()
            return self._form(batches)
        except BaseException:  # StopIteration and KeyboardInterrupt as well
            self.close()
            raise

    def _take(self) -> list[Batch] | None:
        batches = []
        while len(batches) < self._group and (batch := self._ahead.take(None)) is not None:
            batches.append(batch)
        if not batches or (self._drop_last and len(batches) < self._group):
            return None
        return batches

    def close(self) -> None:
        """Ends the pass; stops the thread and the process behind it."""
        if self._open:
            self._open = False
            self._ahead.close()
