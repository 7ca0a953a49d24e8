"""What a server tells its trainers, in replies to heartbeats, about other trainers that are lost or have come back."""

from __future__ import annotations

from collections import deque
from typing import Any

from refluid.runtime.transport.wire import pb

LOST, BACK, REPLACED = "lost", "back", "replaced"
_KEPT = 64


class Notices:
    """The last notices of a server, numbered from 1."""

    def __init__(self) -> None:
        self._last = 0
        self._notices: deque[Any] = deque(maxlen=_KEPT)

    def add(self, trainer: int, event: str, text: str) -> None:
        """Adds a notice."""
        self._last += 1
        self._notices.append(pb.Notice(number=self._last, trainer=trainer, event=event, text=text))

    def after(self, number: int, but: int) -> list[Any]:
        """What a trainer has not heard yet, given the last number that it has heard, and nothing about itself."""
        newest = 0 if number > self._last else number  # it has heard the predecessor of this server
        return [notice for notice in list(self._notices) if notice.number > newest and notice.trainer != but]

    @property
    def last(self) -> int:
        """The number of the last notice."""
        return self._last
