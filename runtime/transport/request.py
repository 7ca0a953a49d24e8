"""One server's part of an exchange."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress

from refluid.runtime.transport.connection import Question
from refluid.runtime.transport.wire import Value

Asked = Question | Future[bytes]
Answer = dict[str, Value]


class Talk:
    """A message to one server and what comes of it. The caller takes the servers' answers in turn.

    If a line breaks before its turn, another thread sends again at once: servers may wait for each other.
    """

    def __init__(self, ask: Callable[[], Asked], finish: Callable[[Asked, float], Answer], threads: Executor):
        """``ask`` sends the message; ``finish`` waits for the answer, from when it was asked, and sends again."""
        self._finish, self._threads = finish, threads
        self._began = time.monotonic()
        self._claiming = threading.Lock()
        self._is_claimed = False
        self._elsewhere: Future[Answer] | None = None
        self._question = ask()
        if isinstance(self._question, Question):
            self._question.when_broken(self.go_on)
        else:
            # Futures keep what they call. A talk that kept itself alive would keep the answer, which may be large.
            me = weakref.ref(self)
            self._question.add_done_callback(lambda question: _look_after(me(), question))

    def result(self) -> Answer:
        """The tensors in the answer."""
        with self._claiming:
            self._is_claimed = True
        return self._talk() if self._elsewhere is None else self._elsewhere.result()

    def cancel(self) -> None:
        """Nobody wants the answer, unless it was there already."""
        with self._claiming:
            self._is_claimed = True
        if self._elsewhere is None:
            self._question.cancel()

    def _talk(self) -> Answer:
        return self._finish(self._question, self._began)

    def go_on(self) -> None:
        """Sends again on another thread, unless somebody waits for the answer already."""
        with self._claiming:
            if not self._is_claimed:
                self._is_claimed = True
                with suppress(RuntimeError):  # Python is ending: when its turn comes, then
                    self._elsewhere = self._threads.submit(self._talk)


def _look_after(talk: Talk | None, question: Future[bytes]) -> None:
    if talk is not None and not question.cancelled() and question.exception() is not None:
        talk.go_on()
