"""The Python functions that py_func ops call. A program holds only their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_FUNCTIONS: list[Callable[..., Any]] = []


def register(function: Callable[..., Any]) -> int:
    """Keeps ``function`` permanently and returns the number by which programs refer to it."""
    _FUNCTIONS.append(function)
    return len(_FUNCTIONS) - 1


def registered(number: int) -> Callable[..., Any]:
    """The function with that number."""
    if not 0 <= number < len(_FUNCTIONS):
        raise ValueError(f"no Python function {number} is registered in this process; build the program here")
    return _FUNCTIONS[number]


def count() -> int:
    """How many functions are registered."""
    return len(_FUNCTIONS)
