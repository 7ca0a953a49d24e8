"""Feeds: converting what users pass to `Executor.run` to the inputs of steps, and checking it."""

from __future__ import annotations

import difflib
import reprlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from refluid.announced import Announced
from refluid.backend import Target
from refluid.errors import FeedError, OpError
from refluid.ir.block import Block
from refluid.ir.program import Program
from refluid.ir.variable import Variable
from refluid.ir.vartype import as_numpy
from refluid.lowering.buckets import Buckets
from refluid.ops.core.values import Ragged
from refluid.tensors import LoDTensor, RemoteArray


def read_feed(
    program: Program, feed: Mapping[str, Any], target: Target, buckets: Buckets, exact: bool
) -> tuple[tuple[str, ...], list[Any]]:
    """Names and values of a feed, no array on another device; sequences are padded to bucket sizes unless ``exact``."""
    _check_kind(feed)
    values = list(feed.values())
    tensors = {}
    for i, (name, value) in enumerate(feed.items()):
        if value.__class__ is LoDTensor and value._lod and value.value is not None:
            tensors[name] = value
        elif value.__class__ is not np.ndarray:
            values[i] = target.move(feed_value(program.global_block(), name, value))
    if tensors:
        padded = buckets.fit(tensors, exact)
        values = [padded.get(name, value) for name, value in zip(feed, values, strict=True)]
    return tuple(feed), values


def _check_kind(feed: Any) -> None:
    if not isinstance(feed, Mapping):
        raise TypeError(f"feed must be a dict of name to value, not {type(feed).__name__}")


def plain_feed(feed: Any) -> dict[str, Any] | None:
    """The feed in a plainer form, if there is one: that of a single place, arrays for tensors without sequences."""
    if isinstance(feed, list | tuple):  # of a DataLoader, one feed per place
        if len(feed) != 1:
            raise ValueError(f"this program runs at one place and takes one feed, not {len(feed)}")
        _check_kind(feed[0])
        return plain_feed(feed[0]) or feed[0]
    following = getattr(feed, "following", None)
    if feed.__class__ is not dict and following is None:
        return None
    values = [_plain_value(value) for value in feed.values()]
    changed = any(new is not old for new, old in zip(values, feed.values(), strict=True))
    if not changed:
        return None
    plain = zip(feed, values, strict=True)
    return dict(plain) if following is None else Announced(plain, following)


def _plain_value(value: Any) -> Any:
    plain = value.__class__ is LoDTensor and not value._lod and value.value.__class__ is np.ndarray
    return value.value if plain else value


def signature(values: Sequence[Any]) -> tuple[Any, ...]:
    """Returns what a compiled step depends on: shapes and dtypes, and how sequences are padded."""
    return tuple([(v.shape, v.dtype) if v.__class__ is not Ragged else _ragged_signature(v) for v in values])


def _ragged_signature(value: Ragged) -> tuple[Any, ...]:
    data = value.data
    return data.shape, data.dtype, tuple(offsets.shape for offsets in value.offsets), value.longest


def feed_value(block: Block, name: str, value: Any) -> Any:
    """Converts a fed value to an array; lists and scalars take the variable's dtype."""
    if isinstance(value, LoDTensor):
        if value.value is None:
            raise FeedError(name, "the LoDTensor holds no value")
        return np.asarray(value.value) if isinstance(value.value, RemoteArray) else value.value
    if isinstance(value, np.ndarray | jax.Array):
        return value
    variable = block.vars.get(name)
    dtype = None if variable is None else as_numpy(variable.dtype)
    try:
        kind = np.asarray(value).dtype.kind
        array = np.array([value] if np.isscalar(value) else value, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise FeedError(name, f"the value cannot be converted to an array of {dtype}: {error}") from error
    if kind in "OSUMm":  # NumPy makes NaN of None, and numbers of text
        raise TypeError(
            f"feed {name}: expected an array, numbers or lists of numbers, a LoDTensor or a JAX array, "
            f"got {reprlib.repr(value)} of type {type(value).__name__}"
        )
    return array


def check_feed(block: Block, names: Sequence[str], values: Sequence[Any]) -> None:
    """Raises unless every value matches the variable it is fed to; warns of values for no variable."""
    for name, value in zip(names, values, strict=True):
        variable = block.vars.get(name)
        if variable is None:
            near = difflib.get_close_matches(name, [v.name for v in block.vars.values() if v.is_data], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.warn(f"feed {name}: the program has no such variable, so it is ignored{hint}", stacklevel=7)
            continue
        expected = as_numpy(variable.dtype)
        if not _accepts(variable, expected, value.dtype):
            raise FeedError(
                name,
                f"expected {expected}{list(variable.shape)}, got {value.dtype}{list(value.shape)}",
                f"convert the array with .astype('{expected}')",
            )
        if variable.need_check_feed and not _fits(_real_shape(value), variable):
            raise FeedError(
                name,
                f"expected shape {list(variable.shape)}, got {list(_real_shape(value))}",
                "a dim of -1 takes any size; the batch comes first",
            )


def _accepts(variable: Variable, expected: np.dtype, given: np.dtype) -> bool:
    """Whether a fed dtype will do. ``fluid.data`` insists on its own; ``layers.data`` declares, but does not check.

    Scripts declare labels without a dtype (so float32) and feed int64; real Fluid runs them. It runs float64 as well
    until an op combines it with a parameter, which fails there; JAX would go on in float64.
    """
    if given == expected:
        return True
    if variable.need_check_feed:
        return False
    if given.kind in "iub":
        return expected.kind == "f" or np.can_cast(given, expected, "safe")
    state = (other for other in variable.block.program.list_vars() if other.persistable)
    return given.kind == expected.kind and not any(other.dtype == variable.dtype for other in state)


def with_feed_hint(error: OpError, block: Block, names: Sequence[str], values: Sequence[Any]) -> OpError:
    """Adds a hint to an op's error about feeds of another shape than declared, which ``layers.data`` allows."""
    odd = [
        f"{name} was declared {list(block.vars[name].shape)} and fed {list(_real_shape(value))}"
        for name, value in zip(names, values, strict=True)
        if name in block.vars and not _fits(_real_shape(value), block.vars[name])
    ]
    if not odd or error.hint or type(error) is not OpError:
        return error
    return OpError(error.op_type, error.problem, error.arguments, error.attrs, error.written_at, "; ".join(odd))


def _real_shape(value: Any) -> tuple[int, ...]:
    """The shape of what was fed, without the padding of sequences."""
    return (int(value.rows), *value.shape[1:]) if isinstance(value, Ragged) else value.shape


def _fits(shape: Sequence[int], variable: Variable) -> bool:
    if len(shape) != len(variable.shape):
        return False
    return all(want < 0 or have == want for have, want in zip(shape, variable.shape, strict=True))
