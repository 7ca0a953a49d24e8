"""Fetches: which variables a run returns, and in which form."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from refluid.errors import FetchError
from refluid.ir.block import Block
from refluid.ir.variable import Variable, name_of
from refluid.ops.control.stacked import Stacked
from refluid.ops.control.steps import Steps, as_list
from refluid.ops.core.values import Ragged, SelectedRows
from refluid.scope import Scope
from refluid.tensors import LoDTensor, SelectedRowsTensor


def fetch_names(fetch_list: Any) -> tuple[str, ...]:
    """Returns the names in a fetch list."""
    if isinstance(fetch_list, str | Variable):
        fetch_list = [fetch_list]
    if isinstance(fetch_list, set) and len(fetch_list) == 1:  # Fluid 1.5 takes any sequence; a set has no order
        fetch_list = list(fetch_list)
    if not isinstance(fetch_list, list | tuple):
        raise TypeError(f"fetch_list must be a list of variables or names, not {type(fetch_list).__name__}")
    return tuple([item if item.__class__ is str else _fetch_name(item) for item in fetch_list])


def _fetch_name(item: Any) -> str:
    if not isinstance(item, str | Variable):
        raise TypeError(f"fetch_list must contain variables or names, not {type(item).__name__}")
    return name_of(item)


def check_fetches(block: Block, fetches: Sequence[str], feeds: Sequence[str], scope: Scope) -> None:
    """Raises unless every fetched variable gets a value."""
    written = {name for op in block.ops for name in op.output_arg_names}
    for name in fetches:
        if name in written or name in feeds:
            continue
        if block.find_var_recursive(name) is None:
            near = difflib.get_close_matches(name, list(block.vars), n=1)
            raise FetchError(name, "the program has no such variable", f"did you mean {near[0]}?" if near else None)
        held = scope.find_var(name)
        if held is None or held.value is None:
            raise FetchError(name, "no op of the program computes it and the scope has no value for it")


def as_numpy(name: str, value: Any) -> Any:
    """Copies a fetched value to a NumPy array."""
    if isinstance(value, SelectedRows):
        raise RuntimeError(f"fetch {name}: selected rows cannot be converted to a NumPy array; pass return_numpy=False")
    if isinstance(value, Ragged):
        if not value.levels:
            return copied(np.asarray(value.data)[: int(value.rows)])
        raise RuntimeError(
            f"fetch {name}: it holds sequences, and a NumPy array would lose their boundaries; "
            "pass return_numpy=False and use np.array(tensor) and tensor.lod()"
        )
    if isinstance(value, list | Steps | Stacked):
        return [as_numpy(name, each) for each in as_list(value)]
    return copied(value)


class OneElement(np.ndarray):
    """An array of one element that converts to a number, for ``float(loss)`` and ``"%f" % loss`` in Fluid scripts.

    NumPy 2.4 converts only arrays without dims. What is computed from it converts too, if it has one element: scripts
    print ``total / batches`` of a ``total += loss``.
    """

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if "out" in options:
            options["out"] = tuple(_plain(each) for each in options["out"])
        found = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return tuple(map(also_a_number, found)) if isinstance(found, tuple) else also_a_number(found)

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __reduce__(self) -> Any:
        return _plain(self).__reduce__()


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, OneElement) else value


def copied(value: Any) -> np.ndarray:
    """Copies a value to a NumPy array."""
    return also_a_number(np.asarray(value).copy())  # twice as fast as np.array(value)


def also_a_number(value: Any) -> Any:
    """The value, as an array that converts to a number if it has one element."""
    one = isinstance(value, np.ndarray) and value.size == 1 and value.ndim
    return value.view(OneElement) if one else value


def as_tensor(name: str, value: Any) -> Any:
    """Converts a fetched value to a LoDTensor or a SelectedRows tensor."""
    if isinstance(value, SelectedRows):
        return SelectedRowsTensor.of(value)
    if isinstance(value, Ragged):
        return LoDTensor.of_sequences(value)
    if isinstance(value, list | Steps | Stacked):
        return [as_tensor(name, each) for each in as_list(value)]
    return LoDTensor(jax.block_until_ready(value))
