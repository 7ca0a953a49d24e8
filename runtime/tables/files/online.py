"""Rows of saved tables in Redis, where a service reads them while it predicts.

A row is one key, ``<prefix><id>``, whose value is its weights as they lie in memory, little-endian. The key
``<prefix>form`` says what they are, and of which snapshot: it is written last.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from refluid.runtime.tables.files.chain import SavedTable
from refluid.runtime.tables.files.parts import GONE
from refluid.runtime.tables.files.weights import up_to_date

_AT_ONCE = 4096  # commands in one message


class OnlineError(RuntimeError):
    """Rows cannot be put into Redis, or read from it."""


@dataclass(frozen=True)
class OnlineForm:
    """What the rows of a prefix are.

    Attributes:
      snapshot: the id of the snapshot that they are of.
      step: its step.
    """

    table: str
    width: int
    dtype: str
    snapshot: str
    step: int


@dataclass(frozen=True)
class Pushed:
    """What was put into Redis: rows, and rows that were given up and are gone from there as well."""

    rows: int
    gone: int


class OnlineRows:
    """The rows of a table in Redis.

    Args:
      url: such as ``redis://host:6379/0``, ``rediss://`` for TLS, ``unix://`` for a socket.
      prefix: what the keys of the table begin with, such as ``emb:``.
    """

    def __init__(self, url: str, prefix: str):
        self._prefix = prefix.encode()
        self._where = url.rpartition("@")[2]  # without a password
        self._redis = _redis().from_url(url)

    def form(self) -> OnlineForm | None:
        """What the rows are; None if there are none."""
        found = self._call("GET", self._prefix + b"form")
        return None if found is None else OnlineForm(**json.loads(found))

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights of rows, and whether each is there; zeros for those that are not."""
        form = self.form()
        if form is None:
            raise OnlineError(f"{self._where} has no rows with the prefix {self._prefix.decode()}")
        dtype = np.dtype(form.dtype).newbyteorder("<")
        rows, found = np.zeros((len(ids), form.width), form.dtype), np.zeros(len(ids), bool)
        for places in _in_messages(range(len(ids))):
            values = self._call("MGET", *(self._key(ids[place]) for place in places))
            for place, value in zip(places, values, strict=True):
                if value is not None:
                    if len(value) != form.width * dtype.itemsize:
                        raise OnlineError(f"{self._where}: {self._key(ids[place]).decode()} is no row of {form.table}")
                    rows[place], found[place] = np.frombuffer(value, dtype), True
        return rows, found

    def push(self, saved: SavedTable, *, delta: bool = False) -> Pushed:
        """Puts a table into Redis, or only what has changed since the snapshot that is there.

        Raises:
          OnlineError: Redis cannot be reached, or holds rows of another form; or there is nothing to add a delta to.
        """
        there, said = self.form(), saved.manifest
        made = OnlineForm(said.table, saved.form.width, saved.form.dtype.name, str(said.id), said.step)
        if there is not None and (there.width, there.dtype) != (made.width, made.dtype):
            raise OnlineError(
                f"{self._where} holds rows of {there.width} x {there.dtype} with the prefix {self._prefix.decode()}; "
                f"{said.table} has {made.width} x {made.dtype}: choose another prefix"
            )
        pushed = self._put(saved, self._changed(saved, there) if delta else saved)
        self._call("SET", self._prefix + b"form", json.dumps(asdict(made)))
        return pushed

    def _changed(self, saved: SavedTable, there: OnlineForm | None) -> SavedTable:
        """The snapshots that follow the one that is in Redis."""
        known = [str(each.manifest.id) for each in saved.snapshots]
        if there is None or there.snapshot not in known:
            what = "no rows" if there is None else f"rows of another snapshot (step {there.step})"
            raise OnlineError(f"{self._where} has {what}; {saved.path} is a delta to others: push it whole")
        if up_to_date(saved).moves_all_rows:
            raise OnlineError(
                f"the optimizer of {saved.manifest.table} also moves rows without a gradient, so all of them have "
                "changed: push it whole"
            )
        return SavedTable(saved.snapshots[known.index(there.snapshot) + 1 :])

    def _put(self, whole: SavedTable, chosen: SavedTable) -> Pushed:
        gone = sum(self._many("DEL", ((key,) for key in keys)) for keys in self._gone(chosen))
        rows, current = 0, up_to_date(whole)
        for ids, records in chosen.records() if chosen.snapshots else ():
            weights = np.ascontiguousarray(current.weights(ids, records))
            weights = weights.astype(weights.dtype.newbyteorder("<"), copy=False)
            rows += self._many("SET", ((self._key(id), row.tobytes()) for id, row in zip(ids, weights, strict=True)))
        return Pushed(rows, gone)

    def _gone(self, saved: SavedTable) -> Iterator[list[bytes]]:
        for each in saved.snapshots:
            for part in each.manifest.parts:
                for kind, values in each.chunks(part):
                    if kind == GONE:
                        yield [self._key(id) for id in values]

    def _key(self, id: Any) -> bytes:
        return self._prefix + str(int(id)).encode()

    def _many(self, command: str, arguments: Iterable[Sequence[Any]]) -> int:
        count = 0
        for some in _in_messages(arguments):
            pipeline = self._redis.pipeline(transaction=False)
            for each in some:
                pipeline.execute_command(command, *each)
            self._run(pipeline.execute)
            count += len(some)
        return count

    def _call(self, *arguments: Any) -> Any:
        return self._run(self._redis.execute_command, *arguments)

    def _run(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except _redis().RedisError as error:
            raise OnlineError(f"{self._where}: {error}") from error


def _in_messages(items: Iterable[Any]) -> Iterator[list[Any]]:
    source = iter(items)
    while some := list(islice(source, _AT_ONCE)):
        yield some


def _redis() -> Any:
    try:
        return importlib.import_module("redis")
    except ImportError as error:
        raise ImportError(
            "rows in Redis need the package redis: pip install redis, or refluid with its extra [redis]"
        ) from error
