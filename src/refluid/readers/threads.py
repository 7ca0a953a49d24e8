"""Reads and maps ahead of a consumer, in threads.

A consumer that stops early closes its generator, which stops every thread behind it. An exception in a thread is raised
in the consumer, after the items that were ready before it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any
from weakref import finalize

# A thread that is inside the user's reader when the consumer leaves stops as soon as the reader returns; the consumer
# waits for it at most this long.
_JOIN_TIMEOUT = 1.0
SLOW_JOIN_TIMEOUT = 5.0  # for a thread inside of a slow file system, or one that a process keeps waiting
_END = object()


class Closed(Exception):
    """The other end of a channel is closed."""


class Channel:
    """A queue of at most ``size`` items that either end can close.

    A producer that finds it full sleeps until it is half empty: waking a thread for every item costs more than most
    items do.
    """

    def __init__(self, size: int):
        self._size = max(1, size)
        self._items: deque[Any] = deque()
        self._lock = threading.RLock()  # garbage collection may close a channel on the very thread that holds it
        self._filled, self._emptied = threading.Condition(self._lock), threading.Condition(self._lock)
        self._open = True
        self._error: BaseException | None = None

    def put(self, item: Any) -> None:
        """Adds an item, waiting for space; raises Closed if the consumer has closed the channel."""
        with self._lock:
            while len(self._items) >= self._size and self._open:
                self._emptied.wait()
            if not self._open:
                raise Closed
            self._items.append(item)
            self._filled.notify()

    def finish(self, error: BaseException | None = None) -> None:
        """Marks the end of the items; the consumer then raises ``error``, if there is one."""
        with self._lock:
            if self._open:
                self._open, self._error = False, error
                self._wake_all()

    def close(self) -> None:
        """Closes the channel from the consumer's side and drops the items in it."""
        with self._lock:
            self._open = False
            self._items.clear()
            self._wake_all()

    def _wake_all(self) -> None:
        self._filled.notify_all()
        self._emptied.notify_all()

    def get(self, default: Any) -> Any:
        """Takes an item, waiting for one; at the end raises the producer's error or returns ``default``."""
        with self._lock:
            while not self._items and self._open:
                self._filled.wait()
            if self._items:
                item = self._items.popleft()
                if len(self._items) <= self._size // 2:
                    self._emptied.notify_all()
                return item
        if self._error is not None:
            raise self._error
        return default

    def peek(self) -> Any:
        """The item that `get` would take, without waiting for one; None if there is none yet."""
        with self._lock:
            return self._items[0] if self._items else None

    def ended(self) -> bool:
        """Whether `get` would return its default; waits for an item."""
        with self._lock:
            while not self._items and self._open:
                self._filled.wait()
            self._filled.notify()  # it may have been another thread that the item was for
            return not self._items and self._error is None

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        while (item := self.get(_END)) is not _END:
            yield item


class ReadAhead:
    """The items of ``source()``, which a thread reads up to ``size`` items ahead, from now on.

    The thread ends when the items do, when this is closed or forgotten, and when Python exits.

    Args:
      before, after: called before and after the thread is waited for, when this ends.
    """

    def __init__(
        self,
        source: Callable[[], Iterable[Any]],
        size: int,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ):
        self._items = Channel(size)
        thread = start("read ahead", _fill, self._items, source)
        self.close = finalize(self, _end, self._items, thread, before, after)

    def take(self, default: Any) -> Any:
        """Takes the next item; returns ``default`` at the end, or raises the source's error there."""
        return self._items.get(default)

    def peek(self) -> Any:
        """The next item, if it has been read already; None otherwise."""
        return self._items.peek()

    def ended(self) -> bool:
        """Whether there is no further item; waits for one."""
        return self._items.ended()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)


def _end(
    items: Channel, thread: threading.Thread, before: Callable[[], None] | None, after: Callable[[], None] | None
) -> None:
    """Drops what was read and waits for the thread, unless it is inside of the source for long."""
    items.close()
    if before is not None:
        before()
    join(thread)
    if after is not None:
        after()


def read_ahead(source: Callable[[], Iterable[Any]], size: int) -> Iterator[Any]:
    """Yields the items of ``source()``, which a thread reads up to ``size`` items ahead."""
    ahead = ReadAhead(source, size)
    try:
        yield from ahead
    finally:
        ahead.close()


def map_in_threads(
    function: Callable[[Any], Any], source: Callable[[], Iterable[Any]], threads: int, size: int, *, ordered: bool
) -> Iterator[Any]:
    """Yields ``function(item)`` for each item of ``source()``, computed by ``threads`` threads.

    Args:
      size: the capacity of the queues before and after the threads.
      ordered: keep the order of ``source``; otherwise yield results as they complete.
    """
    arrange = _map_in_order if ordered else _map_as_completed
    channels, jobs, results = arrange(function, source, threads, size)
    workers = [start("map", *job) for job in jobs]
    try:
        yield from results
    finally:
        for channel in channels:
            channel.close()
        for worker in workers:
            join(worker)


def _map_in_order(function, source, threads, size):
    work, futures = Channel(size), Channel(size)

    def submit():
        for item in source():
            result: Future[Any] = Future()
            futures.put(result)
            work.put((result, item))

    def read():
        try:
            submit()
        except Closed:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
            futures.finish(error)
        futures.finish()
        work.finish()

    def compute():
        for result, item in work:
            try:
                result.set_result(function(item))
            except BaseException as error:  # noqa: BLE001 - raised in the consumer
                result.set_exception(error)

    results = (result.result() for result in futures)
    return [work, futures], [(read,)] + [(compute,)] * threads, results


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


def start(name: str, target: Callable[..., None], *args: Any) -> threading.Thread:
    """Starts a thread that does not keep Python from exiting."""
    thread = threading.Thread(target=target, args=args, name=f"refluid: {name}", daemon=True)
    thread.start()
    return thread


def join(thread: threading.Thread, timeout: float = _JOIN_TIMEOUT) -> None:
    """Waits for a thread, but not for long."""
    if thread is not threading.current_thread():  # a forgotten generator may be collected on any thread
        thread.join(timeout)
