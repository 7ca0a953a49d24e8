"""Sorting, ranking and finding unique elements."""

from __future__ import annotations

from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layers._topics.core.append import append_single_op, input_or_attr, without_gradient
from refluid.ir import Variable, as_dtype

__all__ = ["argmax", "argmin", "argsort", "topk", "unique", "unique_with_counts"]


def _without_gradient(made: dict[str, Variable]) -> list[Variable]:
    return [without_gradient(variable) for variable in made.values()]


def argmin(x: Variable, axis: int = 0) -> Variable:
    """Returns the indices of the smallest elements along ``axis``."""
    check_type(x, "x", Variable, "argmin")
    return _without_gradient(append_single_op("arg_min", {"X": x}, {"Out": "int64"}, {"axis": axis}))[0]


def argmax(x: Variable, axis: int = 0) -> Variable:
    """Returns the indices of the largest elements along ``axis``."""
    check_type(x, "x", Variable, "argmax")
    return _without_gradient(append_single_op("arg_max", {"X": x}, {"Out": "int64"}, {"axis": axis}))[0]


def argsort(
    input: Variable, axis: int = -1, name: str | bool | None = None, descending: bool | str | None = False
) -> tuple[Variable, Variable]:
    """Sorts along ``axis``; returns the sorted elements and their original indices."""
    check_type(input, "input", Variable, "argsort")
    if isinstance(name, bool):  # since 1.6, ``descending`` comes before ``name``
        name, descending = descending or None, name
    outputs = {"Out": input.dtype, "Indices": "int64"}
    attrs = {"axis": axis, "descending": bool(descending)}
    ordered, places = _without_gradient(append_single_op("argsort", {"X": input}, outputs, attrs, name))  # pyright: ignore
    return ordered, places


def topk(input: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """Returns the ``k`` largest elements of each row, largest first, and their indices."""
    check_type(input, "input", Variable, "topk")
    check_type(k, "k", (int, Variable), "topk")
    inputs, attrs = input_or_attr(k, "K", "k")
    outputs = {"Out": input.dtype, "Indices": "int64"}
    values, places = _without_gradient(append_single_op("top_k", {"X": input, **inputs}, outputs, attrs, name))
    return values, places


def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """Returns the unique elements of a vector in order of first appearance, and the index of each element among them.

    Args:
      dtype: of the indices.
    """
    out, index = _unique("unique", x, dtype, ("Index",))
    return out, index


def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """Like unique, and also returns the count of each unique element."""
    out, index, count = _unique("unique_with_counts", x, dtype, ("Index", "Count"))
    return out, index, count


def _unique(type: str, x: Variable, dtype: Any, slots: tuple[str, ...]) -> list[Variable]:
    check_type(x, "x", Variable, type)
    if len(x.shape) != 1:
        raise ValueError(f"{type}: x must be a vector, got shape {list(x.shape)}")
    dtype = as_dtype(dtype)
    if dtype not in (as_dtype("int32"), as_dtype("int64")):
        raise TypeError(f"{type}: dtype must be int32 or int64, not {dtype.name}")
    outputs = {"Out": x.dtype, **dict.fromkeys(slots, dtype)}
    return list(append_single_op(type, {"X": x}, outputs, {"dtype": int(dtype)}).values())
