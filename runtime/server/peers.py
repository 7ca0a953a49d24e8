"""Servers that add up what each of them knows a part of, before an update: the squares of a global norm."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc
import numpy as np

from refluid.runtime.transport import wire
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.wire import dense, pb

_PATIENCE = 120.0  # seconds; the other servers are in the same round already, or about to be
_NOTICE = 5.0  # seconds to tell a server that a trainer is lost


class Peers:
    """The servers of a job, seen from one of them. The first adds up, the others ask it."""

    def __init__(self, endpoints: Sequence[str], endpoint: str):
        self._endpoints = list(endpoints)
        self._endpoint = endpoint
        self._connection: Connection | None = None
        self._changed = threading.Condition()
        self._parts: dict[tuple[int, str], dict[int, list[np.ndarray]]] = {}
        self._totals: dict[tuple[int, str], list[np.ndarray]] = {}

    def sum(self, round: int, key: str, endpoints: Sequence[str], values: list[np.ndarray]) -> list[np.ndarray]:
        """The sums of ``values`` over the servers ``endpoints``, this one among them; the same bits on all of them."""
        if len(endpoints) == 1:
            return values
        server = endpoints.index(self._endpoint)
        if server == 0:
            return self._contribute(round, key, server, values, len(endpoints))
        names = [str(i) for i in range(len(values))]
        parts = [wire.describe(name, value) for name, value in zip(names, values, strict=True)]
        header = pb.SumRequest(server=server, servers=len(endpoints), round=round, key=key, parts=parts)
        if self._connection is None:
            self._connection = Connection(endpoints[0])
        answer = self._connection.call("Sum", wire.encode(header, values), _PATIENCE)
        totals = wire.tensors(wire.decode(pb.ExchangeReply, answer).tensors, answer)
        return [dense(totals[name]) for name in names]

    def tell_lost(self, trainer: int) -> None:
        """Tells the other servers of a trainer that was given up: it may have died before it came to all of them."""
        notice = pb.CallerRequest(caller=pb.Caller(trainer=trainer))
        for endpoint in self._endpoints:
            if endpoint == self._endpoint:
                continue
            connection = Connection(endpoint)
            with suppress(grpc.RpcError):  # a server that has ended already need not know
                connection.call("Lost", wire.encode(notice), _NOTICE)
            connection.close()

    def answer(self, message: bytes) -> list[Any]:
        """Another server's part arrives, and it wants the total."""
        request = wire.decode(pb.SumRequest, message)
        values = [dense(value) for value in wire.tensors(request.parts, message).values()]
        totals = self._contribute(request.round, request.key, request.server, values, request.servers)
        tensors = [wire.describe(str(i), value) for i, value in enumerate(totals)]
        return wire.encode(pb.ExchangeReply(version=request.round, tensors=tensors), totals)

    def _contribute(self, round: int, key: str, server: int, values: list[np.ndarray], servers: int):
        place = round, key
        with self._changed:
            parts = self._parts.setdefault(place, {})
            parts[server] = values
            if len(parts) == servers:
                columns = zip(*(parts[server] for server in sorted(parts)), strict=True)
                self._totals[place] = [np.sum(column, axis=0) for column in columns]
                self._forget_before(round - 1, key)
                self._changed.notify_all()
            if not self._changed.wait_for(lambda: place in self._totals, _PATIENCE):
                missing = sorted(set(range(servers)) - set(parts))
                raise TimeoutError(f"round {round}: servers {missing} did not send their part of {key}")
            return self._totals[place]

    def _forget_before(self, round: int, key: str) -> None:
        """The totals of the round before are kept: an answer may be on its way, or asked for again."""
        for table in (self._parts, self._totals):
            for place in [p for p in table if p[1] == key and p[0] < round]:
                del table[place]

    def close(self) -> None:
        """Hangs up."""
        if self._connection is not None:
            self._connection.close()
