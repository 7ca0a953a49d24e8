"""Passes over a loader that a Python loop iterates over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from refluid.readers.position import Position
from refluid.readers.reader import Batch
from refluid.readers.sources import Source
from refluid.readers.workers import read_ahead_of

Peek = Callable[[], Batch | None]


class Pass:
    """Iterates over the batches of one pass, read ahead in a thread or a worker process.

    It ends at the last batch, at an error, when it is closed, and when it is forgotten, as after a ``break``.

    Args:
      position: where the pass begins; counts steps.
      group: how many batches make a step, one for each place.
      drop_last: drop the batches of a last step that are fewer.
      form: what to make of the batches of a step, given also what returns the batch after them, if it is known.
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
        form: Callable[[Sequence[Batch], Peek], Any],
    ):
        self._position = position
        self._ahead = read_ahead_of(source, capacity, skip=group * position.begin(), in_worker=in_worker)
        self._group, self._drop_last, self._form = group, drop_last, form
        self._open = True
        forgetful = ref(self)  # a feed must not keep a forgotten pass alive
        self._peek: Peek = lambda: None if (begun := forgetful()) is None else begun.peek()

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
            return self._form(batches, self._peek)
        except BaseException:  # StopIteration and KeyboardInterrupt as well
            self.close()
            raise

    def peek(self) -> Batch | None:
        """The batch of the next step, if it has been read already and a step takes one; None otherwise."""
        return self._ahead.peek() if self._open and self._group == 1 else None

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
