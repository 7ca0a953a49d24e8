"""What a server checks before a trainer may join: both must run the same job and the same program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from refluid.runtime.server.shard import Shard
from refluid.runtime.transport import wire
from refluid.runtime.transport.admission import budget_from_flags
from refluid.runtime.transport.wire import Rows, Value

MOST_TRAINERS = 100_000
_MOST_SIZES = 64  # that are remembered
_NARROW = frozenset(map(np.dtype, ("bfloat16", "float16")))  # what rows of a table may travel as


def check_join(request: Any, endpoint: str, mode: str, trainers: int, shard: Shard) -> None:
    """Compares a JoinRequest with the server's own configuration.

    Raises:
        ValueError: they differ; the message says in what.
    """
    trainer = request.caller.trainer
    for theirs, ours, text in (
        (request.protocol, wire.PROTOCOL, "speaks protocol version {}; this server speaks {}"),
        (request.endpoint, endpoint, "looks for server {}; this server is {}"),
        (request.mode, mode, "trains in mode {}; this server is configured for mode {}"),
    ):
        if theirs != ours:
            raise ValueError(f"trainer {trainer} {text.format(theirs, ours)}. Do both run the same script?")
    _check_number(trainer, request.trainers, trainers, mode)
    if trainer >= trainers and shard.keeps_copies:
        raise ValueError(
            f"trainer {trainer} cannot be added: with enable_dc_asgd servers keep copies for the {trainers} trainers "
            "that the job began with"
        )
    for verb, tensors in (("pushes", request.pushes), ("pulls", request.pulls)):
        for tensor in tensors:
            _check_tensor(trainer, verb, tensor, shard)


def _check_number(trainer: int, expected: int, trainers: int, mode: str) -> None:
    """Trainers may be added, with larger numbers, to a job in which none waits for the pushes of all others."""
    if expected < trainers or (expected > trainers and mode == "sync"):
        added = "; trainers can be added while a job runs in async, half_async and geo mode" * (expected > trainers)
        raise ValueError(
            f"trainer {trainer} expects {expected} trainers; this server is configured for {trainers}{added}. "
            "Do both run the same script?"
        )
    if not 0 <= trainer < min(expected, MOST_TRAINERS):
        raise ValueError(f"there is no trainer {trainer} in a job of {expected} trainers, numbered from 0")


def _check_tensor(trainer: int, verb: str, tensor: Any, shard: Shard) -> None:
    try:
        dtype, shape, sparse = shard.describe(tensor.name)
    except KeyError:
        raise ValueError(
            f"trainer {trainer} {verb} {tensor.name}, which this server does not have. Do both run the same program?"
        ) from None
    theirs, ours = f"{tensor.dtype}{list(tensor.dims)}", f"{dtype}{list(shape)}"
    if verb == "pushes":
        theirs, ours = theirs + " rows" * tensor.sparse, ours + " rows" * sparse
    if theirs != ours:
        raise ValueError(
            f"trainer {trainer} {verb} {tensor.name} as {theirs}; on this server it is {ours}. "
            "Do both run the same program?"
        )


class _Expected(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    sparse: bool
    row_bytes: int


class Arriving:
    """Checks tensors as they arrive, before anything counts as pushed: against the server's own program."""

    def __init__(self, shard: Shard):
        self._shard, self._most = shard, budget_from_flags()
        self._known: dict[str, _Expected] = {}
        self._sizes: dict[tuple[str, ...], int] = {}  # of what is pulled together

    def check(self, tensors: Mapping[str, Value]) -> int:
        """Returns, if every tensor can be what it is called, how many bytes the rows take that are asked for.

        Raises:
            ValueError: one has another shape, type or form, or asks for more rows than a reply may hold.
            KeyError: the program has no such variable.
        """
        size = 0
        for name, value in tensors.items():
            expected = self._known.get(name) or self._find(name)
            array = value.values if isinstance(value, Rows) else value
            is_pushed = name in self._shard.pushable
            if not is_pushed and array is value and _are_row_numbers(array):
                self._check_count(name, len(array), expected)
                size += len(array) * expected.row_bytes
            elif not _fits(array, array is not value, is_pushed, expected):
                raise ValueError(
                    f"{name} arrives as {array.dtype}{list(array.shape)}{' rows' * (array is not value)}; on this "
                    f"server it is {expected.dtype}{list(expected.shape)}{' rows' * expected.sparse}"
                )
        return size

    def size_of(self, names: Sequence[str]) -> int:
        """How many bytes variables take; tables that grow, which are not read whole, none.

        Raises:
            KeyError: the program has no such variable.
        """
        names = tuple(names)
        found = self._sizes.get(names)
        if found is None:
            known = [self._known.get(name) or self._find(name) for name in dict.fromkeys(names)]
            found = sum(max(0, each.shape[0]) * each.row_bytes if each.shape else each.row_bytes for each in known)
            if len(self._sizes) >= _MOST_SIZES:
                self._sizes.clear()
            self._sizes[names] = found
        return found

    def _check_count(self, table: str, rows: int, expected: _Expected) -> None:
        if rows * expected.row_bytes > self._most:
            raise ValueError(
                f"{rows} rows of {table} take {rows * expected.row_bytes >> 20} MB; {self._most >> 20} MB are allowed, "
                "see FLAGS_rpc_max_inflight_mb"
            )

    def _find(self, name: str) -> _Expected:
        name_of_dtype, shape, sparse = self._shard.describe(name)
        dtype = np.dtype(name_of_dtype)
        row = math.prod(dim for dim in shape[1:] if dim > 0) * dtype.itemsize
        found = self._known[name] = _Expected(dtype, shape, sparse, row)
        return found


def _are_row_numbers(array: np.ndarray) -> bool:
    return array.ndim == 1 and array.dtype == np.int64


def _fits(array: np.ndarray, rows: bool, is_pushed: bool, expected: _Expected) -> bool:
    """Whether values can be those of a variable; a gradient of rows may have any number of them, and be narrower."""
    narrow = is_pushed and array.dtype in _NARROW
    if (array.dtype != expected.dtype and not narrow) or rows != (is_pushed and expected.sparse):
        return False
    return _same(array.shape[rows:], expected.shape[rows:])


def _same(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(want in (-1, got) for got, want in zip(shape, expected, strict=True))
