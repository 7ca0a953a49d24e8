"""Fluid's module path for nested structures and repeated numbers, which its own layers and scripts use."""

from __future__ import annotations

from typing import Any

from paddle.fluid.data_feeder import check_dtype, check_type, check_variable_and_dtype, convert_dtype  # noqa: F401
from paddle.fluid.layers._topics.core.nested import flatten, map_structure, same_structure  # noqa: F401


def convert_to_list(value: Any, n: int, name: str, dtype: type = int) -> list[Any]:
    """Returns ``value`` n times, or as a list if it holds n elements of that type."""
    if isinstance(value, dtype):
        return [value] * n
    try:
        found = list(value)
    except TypeError:
        raise ValueError(f"{name} must be {dtype.__name__}, or a list of {n} of them, not {value!r}") from None
    if len(found) != n or not all(isinstance(each, dtype) for each in found):
        raise ValueError(f"{name} must be {dtype.__name__}, or a list of {n} of them, not {value!r}")
    return found


def is_sequence(seq: Any) -> bool:
    """Whether it is a structure that holds others: a list, a tuple or a dict."""
    return isinstance(seq, list | tuple | dict)


def pack_sequence_as(structure: Any, flat_sequence: Any) -> Any:
    """The inverse of `flatten`: the elements in the positions that ``structure`` has."""
    elements = list(flat_sequence)
    if len(elements) != len(flatten(structure)):
        raise ValueError(f"the structure has {len(flatten(structure))} places for {len(elements)} elements")
    left = iter(elements)
    return map_structure(lambda _: next(left), structure)


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Raises ValueError unless two nested structures have the same places, TypeError if only their types differ."""
    if _places(nest1, typed=False) != _places(nest2, typed=False):
        raise ValueError(f"the structures differ: {nest1!r} and {nest2!r}")
    if check_types and _places(nest1, typed=True) != _places(nest2, typed=True):
        raise TypeError(f"the structures have different types: {nest1!r} and {nest2!r}")


def _places(nest: Any, *, typed: bool) -> Any:
    if isinstance(nest, dict):
        return {key: _places(value, typed=typed) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest) if typed else None, [_places(each, typed=typed) for each in nest]
    return None
