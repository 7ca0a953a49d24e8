"""Ranges of records that a lock is held for."""

from __future__ import annotations

from collections.abc import Iterator


def spans(count: int, size: int = 1 << 14) -> Iterator[tuple[int, int]]:
    """Ranges that are short enough to hold a lock for: about a millisecond."""
    return ((begin, min(begin + size, count)) for begin in range(0, count, size))
