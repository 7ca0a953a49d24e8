"""Which reader each op makes that puts one into a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refluid.readers.reader import Reader

Maker = Callable[..., Reader]
_MAKERS: dict[str, Maker] = {}


def makes(type: str) -> Callable[[Maker], Maker]:
    """Registers the decorated function or class for an op: called with the values of its inputs, and its attributes."""

    def register(maker: Maker) -> Maker:
        _MAKERS[type] = maker
        return maker

    return register


def make(type: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Reader:
    """Makes the reader of one operator."""
    return _MAKERS[type](*inputs, **attrs)
