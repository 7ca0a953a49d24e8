"""Feeds that know what follows them, so that a step can have requested early what the next one needs from servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

Following = Callable[[], Mapping[str, Any] | None]  # the next feed, or some of it; None while that is not known


class Expecting(Protocol):
    """What requests early what a feed needs: a step."""

    def expect(self, feeds: Mapping[str, Any]) -> None: ...


def announce(following: Following, step: Expecting) -> None:
    """Announces what follows to a step that is about to run, as far as it is known."""
    feeds = following()
    if feeds is not None:
        step.expect(feeds)


class Announced(dict[str, Any]):
    """A feed of a loader. What follows is a guess: a loop may break off, or change a feed before it runs."""

    def __init__(self, feed: Mapping[str, Any] | Iterable[tuple[str, Any]], following: Following):
        super().__init__(feed)
        self.following = following

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # in another process nothing follows it
