"""Which reader each op makes that puts one into a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from refluid.readers.reader import Reader

Maker = Callable[..., Reader]
Made = TypeVar("Made", bound=Maker)
_MAKERS: dict[str, Maker] = {}


def makes(type: str) -> Callable[[Made], Made]:
    """Registers the decorated function or class for an op: called with the values of its inputs, and its attributes."""

    def register(maker: Made) -> Made:
        _MAKERS[type] = maker
        return maker

    return register


def make(type: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Reader:
    """Makes the reader of one operator."""
    return _MAKERS[type](*inputs, **attrs)
