"""Dispatchers decide which server holds which slice."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any


class PSDispatcher:
    """Assigns a server to every variable. Override `dispatch` to write another one."""

    def __init__(self, pserver_endpoints: Sequence[str]):
        self._eps = list(pserver_endpoints)
        self._step = 0

    @property
    def eps(self) -> list[str]:
        """The endpoints of all servers."""
        return self._eps

    def reset(self) -> None:
        """Resets the dispatcher; called once before the variables of a program are dispatched."""
        self._step = 0

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """Returns an endpoint for each variable; called once per parameter, with its slices."""
        raise NotImplementedError(f"{type(self).__name__} must override dispatch(varlist)")


class RoundRobin(PSDispatcher):
    """Assigns servers in turn."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        chosen = [self._eps[(self._step + place) % len(self._eps)] for place in range(len(varlist))]
        self._step += len(chosen)
        return chosen


class HashName(PSDispatcher):
    """Assigns servers by a hash of the name, which is the same in every process and run."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        return [self._eps[self._hash_block(variable.name, len(self._eps))] for variable in varlist]

    def _hash_block(self, block_str: str, total: int) -> int:
        return zlib.crc32(block_str.encode()) % total
