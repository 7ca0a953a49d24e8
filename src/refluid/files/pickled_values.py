"""The plain data a pickle may hold, and the few functions it may name: those that make NumPy arrays, dtypes and bytes.

None of them is the function that the pickle names: each is a replacement that checks its arguments and makes a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

_MAX_DEPTH = 100  # of containers in containers


class PickleError(ValueError):
    """Bytes that are not a pickle of plain data."""


class Unfinished:
    """An array or dtype whose content follows in a later instruction; ``value`` is None until then."""

    def __init__(self, finish: Callable[[Any], Any]):
        self.finish, self.value = finish, None


class Raw:
    """A large run of bytes; the first array that the pickle makes of them uses this memory, later ones a copy."""

    def __init__(self, array: np.ndarray):
        self.array, self.is_taken = array, False

    def __len__(self) -> int:
        return len(self.array)

    def take(self) -> np.ndarray:
        """The bytes, which the caller owns."""
        array = self.array.copy() if self.is_taken else self.array
        self.is_taken = True
        return array


def finished(value: Any) -> Any:
    """The value of an `Unfinished` that has been completed; anything else unchanged."""
    return value.value if isinstance(value, Unfinished) and value.value is not None else value


def _make_array(kind: Any = None, shape: Any = (), typecode: Any = b"b") -> Unfinished:
    if kind is not CALLABLES["numpy", "ndarray"]:
        raise PickleError("the pickle holds an array that is not numpy.ndarray")
    return Unfinished(_fill_array)


def _fill_array(state: Any) -> np.ndarray:
    _, shape, dtype, fortran, data = state
    dtype = finished(dtype)
    if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple) or not isinstance(data, bytes | str | Raw):
        raise PickleError("the pickle holds an array of something other than numbers")
    if len(shape) > 32 or not all(isinstance(dim, int) and 0 <= dim < 1 << 48 for dim in shape):
        raise PickleError(f"the pickle holds an array of shape {shape[:40]}")
    if isinstance(data, str):  # bytes of Python 2
        data = data.encode("latin-1")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise PickleError(f"the pickle holds {len(data)} bytes for an array of shape {shape}, {dtype}")
    is_own = isinstance(data, Raw) and dtype.isnative and not fortran
    array = np.frombuffer(data.take() if isinstance(data, Raw) else data, dtype)
    array = array.reshape(shape, order="F" if fortran else "C")
    return array if is_own else array.astype(dtype.newbyteorder("="), order="C")  # the caller may modify it


def _make_dtype(code: Any = None, align: Any = False, copy: Any = True) -> Unfinished:
    if not isinstance(code, str) or not re.fullmatch(r"[biufc](1|2|4|8|16)", code):
        raise PickleError(f"the pickle holds the dtype {code!r}; only numbers are supported")
    return Unfinished(lambda state: _ordered(np.dtype(code), state))


def _ordered(dtype: np.dtype, state: Any) -> np.dtype:
    order, parts = state[1], state[2:5]
    if order not in ("<", ">", "|", "=") or any(part is not None for part in parts):
        raise PickleError("the pickle holds a structured dtype; only numbers are supported")
    return dtype.newbyteorder(order)


def _make_scalar(dtype: Any = None, data: Any = b"") -> Any:
    dtype = finished(dtype)
    data = data.encode("latin-1") if isinstance(data, str) else data
    if not isinstance(dtype, np.dtype) or not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise PickleError("the pickle holds a damaged scalar")
    return np.frombuffer(data, dtype.newbyteorder(dtype.byteorder))[0]


def _make_bytes(text: Any = "", encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise PickleError("the pickle wants text in an unusual encoding")
    return text.encode("latin-1")


def _make_dict(items: Any = ()) -> dict[str, Any]:
    made = {}
    for key, value in items:
        made[checked_key(key)] = value
    return made


def checked_key(key: Any) -> str:
    """Returns a key that is a name; other types could be forged to collide in a dict."""
    if not isinstance(key, str):
        raise PickleError(f"the pickle has a {type(key).__name__} as a key; names are expected")
    return key


def _not_called(*_: Any) -> Any:
    raise PickleError("the pickle calls numpy.ndarray itself")


def check_plain(value: Any) -> None:
    """Raises PickleError unless a value is plain data at every depth."""
    _height(value, 0, {})


def _height(value: Any, depth: int, heights: dict[int, int | None]) -> int:
    """The nesting depth of a container; raises if it holds unfinished arrays, functions or, at any depth, itself."""
    if not isinstance(value, dict | list | tuple):
        if value is None or isinstance(value, bool | int | float | str | bytes | Raw | np.generic | np.ndarray):
            return 0
        raise PickleError(f"the pickle holds a {type(value).__name__}, which is not plain data")
    height = heights.get(id(value), 0)
    if height is None or depth + height > _MAX_DEPTH:
        raise PickleError("the pickle holds containers that contain themselves or are nested too deeply")
    if id(value) not in heights:
        heights[id(value)] = None  # being visited
        items = value.values() if isinstance(value, dict) else value
        height = 1 + max((_height(item, depth + 1, heights) for item in items), default=0)
        heights[id(value)] = height
    return height


def with_bytes(value: Any) -> Any:
    """A copy of a plain value in which bytes that did not become an array are `bytes` objects."""
    return _copied(value, {})


def _copied(value: Any, known: dict[int, Any]) -> Any:
    if id(value) not in known:
        if isinstance(value, Raw):
            known[id(value)] = value.array.tobytes()
        elif isinstance(value, dict):
            known[id(value)] = {key: _copied(item, known) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            known[id(value)] = type(value)(_copied(item, known) for item in value)
        else:
            return value
    return known[id(value)]


# The functions a pickle may name, as NumPy 1, NumPy 2 and Python write them, and what replaces each.
CALLABLES: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _make_array,
    ("numpy._core.multiarray", "_reconstruct"): _make_array,
    ("numpy.core.multiarray", "scalar"): _make_scalar,
    ("numpy._core.multiarray", "scalar"): _make_scalar,
    ("numpy", "ndarray"): _not_called,
    ("numpy", "dtype"): _make_dtype,
    ("_codecs", "encode"): _make_bytes,
    ("__builtin__", "bytes"): _make_bytes,  # without arguments: no bytes
    ("collections", "OrderedDict"): _make_dict,
}
