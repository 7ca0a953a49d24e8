"""Fresh names: fc_0, fc_1, ... One generator is current; guards switch it, so that two programs can agree on names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class UniqueNameGenerator:
    """Counts keys: the n-th call for a key gives ``prefix + key_n``."""

    def __init__(self, prefix: str | None = None):
        self.prefix = prefix or ""
        self.ids: dict[str, int] = defaultdict(int)

    def __call__(self, key: str) -> str:
        number = self.ids[key]
        self.ids[key] += 1
        return f"{self.prefix}{key}_{number}"


_generator = UniqueNameGenerator()


def generate(key: str) -> str:
    """A name that starts with ``key`` and has not been given before by the current generator."""
    return _generator(key)


def switch(new_generator: UniqueNameGenerator | None = None) -> UniqueNameGenerator:
    """Makes ``new_generator`` (by default a fresh one) current and returns the one before."""
    global _generator
    before = _generator
    _generator = new_generator or UniqueNameGenerator()
    return before


@contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Names inside come from ``new_generator``: a generator, a prefix for a fresh one, or a fresh one by default."""
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    before = switch(new_generator)
    try:
        yield
    finally:
        switch(before)
