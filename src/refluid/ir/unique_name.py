"""Unique names: fc_0, fc_1, ... Guards switch the current generator, so that two programs can use the same names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class UniqueNameGenerator:
    """Counts keys: the n-th call for a key returns ``prefix + key_n``."""

    def __init__(self, prefix: str | None = None):
        self.prefix = prefix or ""
        self.ids: dict[str, int] = defaultdict(int)

    def __call__(self, key: str) -> str:
        number = self.ids[key]
        self.ids[key] += 1
        return f"{self.prefix}{key}_{number}"


_generator = UniqueNameGenerator()


def generate(key: str) -> str:
    """Returns a name that starts with ``key`` and is unique within the current generator."""
    return _generator(key)


def switch(new_generator: UniqueNameGenerator | None = None) -> UniqueNameGenerator:
    """Makes ``new_generator`` (by default a new one) current and returns the previous one."""
    global _generator
    before = _generator
    _generator = new_generator or UniqueNameGenerator()
    return before


@contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Generates names inside with ``new_generator``: a generator, a prefix for a new one, or by default a new one."""
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    before = switch(new_generator)
    try:
        yield
    finally:
        switch(before)
