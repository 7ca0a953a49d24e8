"""Nested structures of variables: lists, tuples and dicts that layers accept and return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refluid.ir import Variable


def same_structure(first: Any, second: Any) -> bool:
    """Returns whether two nested structures hold variables in the same positions."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_structure(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(same_structure, first, second))
    return (isinstance(first, Variable) and isinstance(second, Variable)) or (first is None and second is None)


def map_structure(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Applies ``function`` to corresponding variables of equal structures; returns a structure of the results."""
    if isinstance(first, dict):
        # Sorted by key, like Fluid: the order determines the names of new variables.
        return {key: map_structure(function, first[key], *(other[key] for other in others)) for key in sorted(first)}
    if isinstance(first, list | tuple):
        mapped = [map_structure(function, *each) for each in zip(first, *others, strict=True)]
        if isinstance(first, list):
            return mapped
        return type(first)(*mapped) if hasattr(first, "_fields") else tuple(mapped)
    return function(first, *others)


def flatten(structure: Any) -> list[Any]:
    """Returns the variables of a nested structure, in order."""
    found: list[Any] = []
    map_structure(found.append, structure)
    return found
