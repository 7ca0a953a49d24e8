"""Readers whose passes are generators: of files, of random numbers, or of what another reader reads."""

from __future__ import annotations

import threading
import zlib
from abc import abstractmethod
from collections.abc import Generator, Iterator

import numpy as np

from refluid.readers.reader import Batch, Reader, WrappingReader

Batches = Generator[Batch, None, None]


class Generated(Reader):
    """A reader whose subclass writes a pass as a generator. A pass begins by itself, at the first batch."""

    def __init__(self):
        self._lock = threading.Lock()
        self._pass: Batches | None = None
        self._peeked: list[Batch] = []

    @abstractmethod
    def batches(self) -> Batches:
        """The batches of a pass; closing the generator stops its threads."""

    def next(self) -> Batch | None:
        with self._lock:
            return self._peeked.pop() if self._peeked else self._next()

    def eof(self) -> bool:
        with self._lock:
            if not self._peeked:
                self._peeked += [batch for batch in (self._next(),) if batch is not None]
            return not self._peeked

    def end(self) -> None:
        """Ends the pass; waits for a thread that is inside of `next`."""
        with self._lock:
            if self._pass is not None:
                self._pass.close()
            self._pass = None
            self._peeked = []

    def random(self) -> np.random.Generator:
        """Random numbers that depend on the program's seed and the reader's name."""
        return np.random.default_rng([self.seed, zlib.crc32(self.name.encode())] if self.seed else None)

    def _next(self) -> Batch | None:
        if self._pass is None:
            self._pass = self.batches()
        return next(self._pass, None)


class SourceReader(Generated):
    """A reader that reads from no other one."""

    def reset(self) -> None:
        self.end()
        self.forget_wrapped()
        self.end()  # a thread of a reader around this one may have begun another pass meanwhile


class WrappingGenerated(Generated, WrappingReader):
    """A reader of what another one reads."""

    def __init__(self, wrapped: Reader):
        Generated.__init__(self)
        WrappingReader.__init__(self, wrapped)

    def below(self) -> Iterator[Batch]:
        """The batches of a pass of the reader below."""
        return iter(self.wrapped.next, None)

    def reset(self) -> None:
        # It reaches this reader again, as `forget`: by then nobody waits for a batch of the reader below.
        self.wrapped.reset()

    def forget(self) -> None:
        self.end()
