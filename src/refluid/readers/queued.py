"""Readers of what Python code of this process generates: a queue that a thread fills, and double buffers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from refluid.readers.making import makes
from refluid.readers.position import Position
from refluid.readers.reader import Batch, Reader, WrappingReader
from refluid.readers.sources import Source
from refluid.readers.threads import ReadAhead
from refluid.readers.workers import read_ahead_of


class QueueReader(Reader):
    """Batches of a generator, which a thread puts into a queue; the reader of `create_py_reader`.

    A pass lasts from `start` to `reset`. Errors of the generator are raised where the next batch is taken.
    """

    def __init__(self, capacity: int, methods: str, *, in_worker: bool = False):
        if int(capacity) < 1:
            raise ValueError(f"the capacity of a reader must be at least 1, not {capacity}")
        self.capacity = int(capacity)
        self.source: Source | None = None
        self.tensors: Sequence[Any] = ()  # shape, dtype and LoD level of each value of a batch
        self.position = Position()
        self.in_worker = in_worker  # run the generator in a process of its own
        self._methods = methods
        self._ahead: ReadAhead | None = None
        self._ended = False
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            if self.source is None:
                raise RuntimeError(f"{self.name}: no generator is set; call {self._methods} before start()")
            if self._ahead is not None:
                raise RuntimeError(f"{self.name}: start() was called before; call reset() to begin another pass")
            skip = self.position.begin()
            self._ahead = read_ahead_of(self.source, self.capacity, skip=skip, in_worker=self.in_worker)
            self._ended = False

    def reset(self) -> None:
        with self._lock:
            ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()  # first: a reader around this one may wait for a batch
        self.forget_wrapped()

    def next(self) -> Batch | None:
        ahead = self._ahead
        if ahead is None:
            raise RuntimeError(f"{self.name}: call start() before running a program that reads from it")
        batch = ahead.take(None)
        with self._lock:
            if ahead is not self._ahead:
                return batch  # another thread has reset this reader meanwhile: the pass is over
            if batch is not None:
                self.position.took()
            elif not self._ended:
                self._ended = True
                self.position.ended()
        return batch

    def peek(self) -> Batch | None:
        ahead = self._ahead
        return None if ahead is None else ahead.peek()

    def state_dict(self) -> dict[str, Any]:
        """The position of this reader: its pass and how many batches of it were taken.

        Raises:
          RuntimeError: a reader around this one has read more than the program.
        """
        for wrapper in _all_around(self):
            if not wrapper.passes_through():
                raise RuntimeError(
                    f"{self.name}: its position is not known, because {wrapper.name} around it reads before the "
                    "program does; change batches in the generator, as paddle.batch and paddle.reader.shuffle do"
                )
        return self.position.state_dict()

    def eof(self) -> bool:
        return self._ahead is None or self._ahead.ended()

    def size(self) -> int:
        """How many batches are ready."""
        return 0 if self._ahead is None else len(self._ahead)


@makes("create_py_reader")
def create_py_reader(queue: Any, **attrs: Any) -> Reader:
    """The queue that the layer has put into the scope."""
    if not isinstance(queue, QueueReader):
        raise TypeError(f"create_py_reader expects the queue of a py_reader, not a {type(queue).__name__}")
    return queue


@makes("create_double_buffer_reader")
class DoubleBuffer(WrappingReader):
    """Reads two batches ahead in a thread, unless the reader below does so already."""

    def __init__(self, wrapped: Reader, place: str = "AUTO"):
        super().__init__(wrapped)
        self._ahead: ReadAhead | None = None
        self._lock = threading.Lock()

    def forget(self) -> None:
        with self._lock:
            ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def next(self) -> Batch | None:
        return self.wrapped.next() if self.passes_through() else self._begun().take(None)

    def peek(self) -> Batch | None:
        return self.wrapped.peek() if self.passes_through() else self._begun().peek()

    def eof(self) -> bool:
        return self.wrapped.eof() if self.passes_through() else self._begun().ended()

    def passes_through(self) -> bool:
        return isinstance(self.wrapped, QueueReader | DoubleBuffer)

    def _begun(self) -> ReadAhead:
        with self._lock:
            if self._ahead is None:
                wrapped = self.wrapped  # not self: a thread must not keep a forgotten reader alive
                self._ahead = ReadAhead(lambda: iter(wrapped.next, None), 2)
            return self._ahead


def _all_around(reader: Reader) -> Iterator[WrappingReader]:
    for wrapper in list(reader.wrappers):
        yield wrapper
        yield from _all_around(wrapper)
