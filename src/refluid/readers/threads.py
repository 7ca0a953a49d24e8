"""Reading and mapping ahead of a consumer, in threads.

A consumer that stops early closes its generator; that wakes and ends every thread behind it. An exception in a thread
is raised in the consumer, after the items that were ready before it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

# A thread that is inside the user's reader when the consumer leaves ends as soon as that returns; the consumer waits
# for it only so long.
_PATIENCE_SECONDS = 1.0


class Closed(Exception):
    """The other end of a channel has left."""


class Channel:
    """A queue of at most ``size`` items that either end can close."""

    def __init__(self, size: int):
        self._size = max(1, size)
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._open = True
        self._error: BaseException | None = None

    def put(self, item: Any) -> None:
        """Adds an item, waiting for room; raises Closed when nobody will take it."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._size or not self._open)
            if not self._open:
                raise Closed
            self._items.append(item)
            self._changed.notify_all()

    def finish(self, error: BaseException | None = None) -> None:
        """Says that no item follows; with ``error``, that it is what follows."""
        with self._changed:
            if self._open:
                self._open, self._error = False, error
                self._changed.notify_all()

    def close(self) -> None:
        """Says that no item will be taken any more."""
        with self._changed:
            self._open = False
            self._items.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or not self._open)
                if not self._items:
                    break
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
        if self._error is not None:
            raise self._error


def read_ahead(source: Callable[[], Iterable[Any]], size: int) -> Iterator[Any]:
    """Yields the items of ``source()``, which a thread reads up to ``size`` items ahead."""
    items = Channel(size)
    thread = _start("read ahead", _fill, items, source)
    try:
        yield from items
    finally:
        items.close()
        _join(thread)


def map_in_threads(
    function: Callable[[Any], Any], source: Callable[[], Iterable[Any]], threads: int, size: int, *, ordered: bool
) -> Iterator[Any]:
    """Yields ``function(item)`` for each item of ``source()``, computed by ``threads`` threads.

    Args:
      size: how many items may be waiting before and after the threads.
      ordered: keep the order of ``source``; otherwise a result is yielded as soon as it is there.
    """
    arrange = _map_in_order if ordered else _map_as_completed
    channels, jobs, results = arrange(function, source, threads, size)
    workers = [_start("map", *job) for job in jobs]
    try:
        yield from results
    finally:
        for channel in channels:
            channel.close()
        for worker in workers:
            _join(worker)


def _map_in_order(function, source, threads, size):
    work, promised = Channel(size), Channel(size)

    def promise():
        for item in source():
            result: Future[Any] = Future()
            promised.put(result)
            work.put((result, item))

    def read():
        try:
            promise()
        except Closed:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
            promised.finish(error)
        promised.finish()
        work.finish()

    def keep_promises():
        for result, item in work:
            try:
                result.set_result(function(item))
            except BaseException as error:  # noqa: BLE001 - raised in the consumer
                result.set_exception(error)

    results = (result.result() for result in promised)
    return [work, promised], [(read,)] + [(keep_promises,)] * threads, results


def _map_as_completed(function, source, threads, size):
    work, done = Channel(size), Channel(size)
    running, lock = [threads], threading.Lock()

    def compute():
        try:
            for item in work:
                done.put(function(item))
        except Closed:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
            done.finish(error)
            work.close()
        with lock:
            running[0] -= 1
            if running[0] == 0:
                done.finish()

    return [work, done], [(_fill, work, source)] + [(compute,)] * threads, done


def _fill(channel: Channel, source: Callable[[], Iterable[Any]]) -> None:
    try:
        for item in source():
            channel.put(item)
    except Closed:
        return
    except BaseException as error:  # noqa: BLE001 - raised in the consumer
        channel.finish(error)
    channel.finish()


def _start(name: str, target: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name=f"refluid: {name}", daemon=True)
    thread.start()
    return thread


def _join(thread: threading.Thread) -> None:
    if thread is not threading.current_thread():  # a forgotten generator may be collected on any thread
        thread.join(_PATIENCE_SECONDS)
