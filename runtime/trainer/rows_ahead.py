"""Rows that the next step will look up, requested before it begins.

Where steps wait for their own push, its message asks for the rows as well: they include that push, and one message is
saved. Where steps may go ahead of their pushes (async training with a communicator), the rows are requested while the
step before computes; they then lack that step, which counts as staleness and never exceeds what the mode allows.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from refluid.runtime.trainer.packing import Message, Replies
from refluid.runtime.trainer.row_requests import Ids, RowRequest


@dataclass
class Expected:
    """The lookups of a step to come."""

    feeds: Sequence[Any]  # the fed values that hold the ids
    ids: Ids
    wanted: RowRequest
    ask: Callable[[], Replies]  # requests the rows in messages of their own
    included: int = 0  # own steps that the rows include
    replies: Replies | None = None
    request: Future[Replies] | None = None  # under way, in messages of its own

    def is_of(self, feeds: Sequence[Any]) -> bool:
        """Whether these are the very values that hold the ids."""
        return len(feeds) == len(self.feeds) and all(a is b for a, b in zip(feeds, self.feeds, strict=True))


class RowsAhead:
    """What the lookups of a session expect."""

    def __init__(self) -> None:
        self.allowed: Callable[[], int] = lambda: 0  # own steps that rows may lack now
        self.outstanding: Callable[[], int] = lambda: 0  # own steps that servers have not applied
        self.lag = 0  # own steps that the rows of the last lookup lacked
        self._lock = threading.Lock()
        self._expected: dict[int, deque[Expected]] = {}  # by lookup: for this step and the next
        self._thread: ThreadPoolExecutor | None = None

    def expect(self, lookup: int, expected: Expected, step: int) -> None:
        """Announces what a lookup needs in the step after this one, which is number ``step`` + 1; may request it."""
        outstanding = self.outstanding()
        with self._lock:
            self._expected.setdefault(lookup, deque(maxlen=2)).append(expected)
            if outstanding + 1 > self.allowed():
                return  # the next push asks for it
            expected.included = step - outstanding
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "rows ahead")
            expected.request = self._thread.submit(expected.ask)

    def share(self, messages: Mapping[str, Message]) -> tuple[dict[str, Message], list[Expected]]:
        """Adds what is expected and not yet requested to the messages of a push; returns what was added, too."""
        with self._lock:
            known = [each for expected in self._expected.values() for each in expected]
        found, shared = dict(messages), []
        for each in reversed(known):
            if (
                each.request is not None
                or each.replies is not None
                or not each.wanted.numbers.keys() <= messages.keys()
            ):
                continue
            # Servers know rows by the name of the slice only: another lookup in the same slices asks later.
            if any(found[endpoint].asked.keys() & numbers.keys() for endpoint, numbers in each.wanted.numbers.items()):
                continue
            shared.append(each)
            for endpoint, numbers in each.wanted.numbers.items():
                message = found[endpoint]
                size = message.reply_size + each.wanted.sizes[endpoint]
                found[endpoint] = replace(message, asked={**message.asked, **numbers}, reply_size=size)
        return found, shared

    @staticmethod
    def receive(shared: Sequence[Expected], replies: Replies, included: int) -> None:
        """Takes what was added to a push from its replies; the rows include a number of own steps."""
        for each in shared:
            each.replies, each.included = replies, included

    def take(self, lookup: int, feeds: Sequence[Any], ids: Callable[[], Ids], step: int) -> Expected | None:
        """What was received for these feeds, or others with the same ids, unless it lacks more steps than allowed now.

        ``ids`` returns those of the feeds, by table.
        """
        self.lag = 0
        expected = self._find(lookup, feeds, ids)
        if expected is None:
            return None
        if expected.request is not None and expected.request.exception() is None:
            expected.replies = expected.request.result()
        lag = step - expected.included
        if expected.replies is None or lag > self.allowed():
            return None
        self.lag = lag
        return expected

    def _find(self, lookup: int, feeds: Sequence[Any], ids: Callable[[], Ids]) -> Expected | None:
        """What is expected of a lookup with these feeds; what was expected before it is dropped."""
        with self._lock:
            known = self._expected.get(lookup, ())
            place = next((i for i, each in enumerate(known) if each.is_of(feeds)), None)
            if place is None:  # loaders announce a batch before it is made ready for a step
                asked = (i for i, each in enumerate(known) if each.replies is not None or each.request is not None)
                place = next((i for i in asked if known[i].wanted.has(ids())), None)
            if place is None:
                return None
            return [self._expected[lookup].popleft() for _ in range(place + 1)][-1]

    def close(self) -> None:
        """Ends the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(cancel_futures=True)
