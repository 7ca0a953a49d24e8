"""Where the time goes: seconds by stage, from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Meter:
    """Adds up the seconds of each stage, such as "read" and "parse"."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, stage: str, seconds: float) -> None:
        with self._lock:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Adds the time that a block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - start)

    def seconds(self) -> dict[str, float]:
        """The seconds of each stage so far; of stages in several threads, those of all of them together."""
        with self._lock:
            return dict(self._seconds)
