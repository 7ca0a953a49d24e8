"""Reads several sources at once, in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from refluid.readers.threads import Channel, Closed, join, start


def merged(sources: Sequence[Callable[[], Iterable[Any]]], threads: int, size: int) -> Iterator[Any]:
    """Yields the items of all sources as they arrive; each of the threads reads one source after the other.

    With one thread, the items come in the order of the sources.

    Args:
      size: how many items the threads together may be ahead.
    """
    items, waiting, lock = Channel(size), iter(sources), threading.Lock()
    running = [threads]

    def take() -> Callable[[], Iterable[Any]] | None:
        with lock:
            return next(waiting, None)

    def work() -> None:
        try:
            while (source := take()) is not None:
                for item in source():
                    items.put(item)
        except Closed:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
            items.finish(error)
        with lock:
            running[0] -= 1
            if running[0] == 0:
                items.finish()

    workers = [start("read", work) for _ in range(threads)]
    try:
        yield from items
    finally:
        items.close()
        for worker in workers:
            join(worker)
