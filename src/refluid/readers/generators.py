"""Readers whose passes are generators: of files, of random numbers, or of what another reader reads."""

from __future__ import annotations

import threading
import zlib
from abc import abstractmethod
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from refluid.readers.reader import Batch, Reader

Batches = Generator[Batch, None, None]


class PassReader(Reader):
    """A reader whose subclass writes a pass as a generator. A pass begins by itself, at the first batch.

    Args:
      wrapped: the reader below, if there is one; a pass of this reader begins and ends with one of that reader.
    """

    repeats = False  # whether a pass has several passes of the reader below

    def __init__(self, wrapped: Reader | None = None):
        self.wrapped = wrapped
        self._lock = threading.Lock()
        self._pass: Batches | None = None
        self._peeked: list[Batch] = []

    @abstractmethod
    def batches(self) -> Batches:
        """The batches of a pass; closing the generator stops its threads."""

    def start(self) -> None:
        if self.wrapped is not None:
            self.wrapped.start()

    def next(self) -> Batch | None:
        with self._lock:
            return self._peeked.pop() if self._peeked else self._next()

    def eof(self) -> bool:
        """Whether the pass has no further batch."""
        with self._lock:
            if not self._peeked:
                self._peeked += [batch for batch in (self._next(),) if batch is not None]
            return not self._peeked

    def reset(self) -> None:
        # A thread may be inside of `next`. The reader below is reset first, so that it does not wait for a batch, and
        # once more when nobody reads from it any longer.
        self._reset_wrapped()
        with self._lock:
            if self._pass is not None:
                self._pass.close()
            self._pass = None
            self._peeked = []
        self._reset_wrapped()

    def random(self) -> np.random.Generator:
        """Random numbers that depend on the program's seed and the reader's name."""
        return np.random.default_rng([self.seed, zlib.crc32(self.name.encode())] if self.seed else None)

    def below(self) -> Iterator[Batch]:
        """The batches of a pass of the reader below."""
        assert self.wrapped is not None
        return iter(self.wrapped.next, None)

    def _next(self) -> Any:
        if self._pass is None:
            self._pass = self.batches()
        batch = next(self._pass, None)
        if batch is None and self.wrapped is not None and not self.repeats:
            self._pass = None  # the reader below goes on saying that its pass has ended, unless somebody resets it
        return batch

    def _reset_wrapped(self) -> None:
        if self.wrapped is not None:
            self.wrapped.reset()
