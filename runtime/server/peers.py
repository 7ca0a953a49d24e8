"""Servers that add up numbers each of them knows a part of, before an update: the squares of a global norm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from refluid.ir.operator import Operator
from refluid.log import Log
from refluid.lowering.exchange import Exchange
from refluid.runtime.transport import wire
from refluid.runtime.transport.request import RetryPolicy, patiently
from refluid.runtime.transport.wire import Rows, dense, pb

_SUM_TIMEOUT = 120.0  # seconds; the other servers are in the same round already, or about to be
_NOTICE_TIMEOUT = 5.0  # seconds
_LARGEST_PART = 64 << 10  # bytes: some numbers for each norm
_MOST_SUMS = 4096  # that are kept; a round has one for each norm, and all but the last round are forgotten


class ServerConnection(Protocol):
    """What a server needs of a connection to another server; a call that fails raises."""

    def call(self, method: str, buffers: Sequence[Any], timeout: float) -> bytes: ...

    def close(self) -> None: ...


class Peers:
    """The servers of a job, seen from one of them. The first one adds up, the others send it their parts.

    Args:
        endpoints: all servers of the job.
        endpoint: this one.
        connect: opens a connection to another server.
    """

    def __init__(self, endpoints: Sequence[str], endpoint: str, connect: Callable[[str], ServerConnection]):
        self.endpoints = self._endpoints = list(endpoints)
        self._endpoint = endpoint
        self._connect = connect
        self._log = Log("server", endpoint=endpoint)
        self._connection: ServerConnection | None = None
        self._changed = threading.Condition()
        self.record: Callable[[int, str, list[np.ndarray]], None] | None = None  # told of totals before they are used
        self._summing: tuple[float, tuple[int, str], Sequence[str]] | None = None  # since when, which sum, over whom
        self._parts: dict[tuple[int, str], dict[int, list[np.ndarray]]] = {}
        self._totals: dict[tuple[int, str], list[np.ndarray]] = {}

    def sum(self, round: int, key: str, endpoints: Sequence[str], values: list[np.ndarray]) -> list[np.ndarray]:
        """The sums of ``values`` over the servers ``endpoints``, this one among them; the same bits on all of them."""
        if len(endpoints) == 1:
            return values
        server = endpoints.index(self._endpoint)
        known = self._totals.get((round, key))
        if known is not None:  # of an update that is applied again
            return known
        self._summing = time.monotonic(), (round, key), endpoints
        try:
            if server == 0:
                return self._contribute(round, key, server, values, len(endpoints))
            header = pb.SumRequest(server=server, servers=len(endpoints), round=round, key=key)
            reply = self._ask(endpoints[0], wire.encode(header, _by_number(values)))
        finally:
            self._summing = None
        totals = [dense(total) for total in wire.decode_tensors(wire.decode(pb.ExchangeReply, reply), reply).values()]
        if self.record is not None:
            self.record(round, key, totals)
        return totals

    @property
    def summing(self) -> tuple[float, list[str]] | None:
        """Since when a sum waits, and for which servers."""
        found = self._summing
        if found is None:
            return None
        since, place, endpoints = found
        if endpoints[0] != self._endpoint:
            return since, [endpoints[0]]
        arrived = self._parts.get(place, {})
        return since, [endpoint for number, endpoint in enumerate(endpoints) if number not in arrived]

    def _ask(self, endpoint: str, buffers: list[Any]) -> bytes:
        """Sends the part of this server; one that adds up may be restarted meanwhile."""
        connection = self._connection = self._connection or self._connect(endpoint)
        return patiently(lambda: connection.call("Sum", buffers, _SUM_TIMEOUT), RetryPolicy(_SUM_TIMEOUT))

    def state(self) -> list[Any]:
        """The totals that others may still ask for, as plain data and arrays."""
        with self._changed:
            return [[round, key, totals] for (round, key), totals in self._totals.items()]

    def restore(self, state: Sequence[Any]) -> None:
        """The inverse of `state`."""
        for round, key, totals in state:
            self.know(round, key, totals)

    def know(self, round: int, key: str, totals: list[np.ndarray]) -> None:
        """Takes the totals of a sum that was made before this server was restarted."""
        with self._changed:
            self._totals[round, key] = totals
            self._forget_before(round - 1, key)

    def report_lost(self, trainer: int) -> None:
        """Tells the other servers of a lost trainer: it may have died before it joined all of them."""
        notice = pb.CallerRequest(caller=pb.Caller(trainer=trainer))
        for endpoint in self._endpoints:
            if endpoint == self._endpoint:
                continue
            try:
                self.call(endpoint, "Lost", wire.encode(notice), _NOTICE_TIMEOUT)
            except Exception as error:  # noqa: BLE001 - a server that has ended already need not know
                self._log.info("another server did not hear of a lost trainer", server=endpoint, reason=str(error))

    def call(self, endpoint: str, method: str, buffers: list[Any], timeout: float) -> bytes:
        """Makes a call to another server."""
        connection = self._connect(endpoint)
        try:
            return connection.call(method, buffers, timeout)
        finally:
            connection.close()

    def handle_sum(self, message: bytes) -> list[Any]:
        """Takes another server's part and replies with the total."""
        if len(message) > _LARGEST_PART:  # they are kept until all have arrived
            raise ValueError(f"a part of a sum takes {len(message)} bytes; {_LARGEST_PART} are allowed")
        request = wire.decode(pb.SumRequest, message)
        if not 0 < request.server < request.servers <= len(self._endpoints) or len(self._parts) >= _MOST_SUMS:
            raise ValueError(
                f"a part of server {request.server} of {request.servers} cannot be added: this job has "
                f"{len(self._endpoints)} servers, and {len(self._parts)} sums are open"
            )
        tensors = wire.decode_tensors(request, message)
        if any(isinstance(value, Rows) for value in tensors.values()):
            raise ValueError("a part of a sum has selected rows; numbers are expected")
        values = [np.array(value) for value in tensors.values()]  # not the whole message
        totals = self._contribute(request.round, request.key, request.server, values, request.servers)
        return wire.encode(pb.ExchangeReply(version=request.round), _by_number(totals))

    def _contribute(
        self, round: int, key: str, server: int, values: list[np.ndarray], servers: int
    ) -> list[np.ndarray]:
        place = round, key
        with self._changed:
            parts = self._parts.setdefault(place, {})
            parts[server] = values
            if len(parts) == servers and place not in self._totals:
                columns = zip(*(parts[server] for server in sorted(parts)), strict=True)
                totals = [np.sum(column, axis=0) for column in columns]
                if self.record is not None:  # before any server uses them: they are not made again after a restart
                    self.record(round, key, totals)
                self._totals[place] = totals
                self._forget_before(round - 1, key)
                self._changed.notify_all()
            if not self._changed.wait_for(lambda: place in self._totals, _SUM_TIMEOUT):
                missing = sorted(set(range(servers)) - set(parts))
                raise TimeoutError(f"round {round}: servers {missing} did not send their part of {key}")
            return self._totals[place]

    def _forget_before(self, round: int, key: str) -> None:
        """Keeps the totals of the previous round: a reply may be on its way, or requested again."""
        for table in (self._parts, self._totals):
            for place in [p for p in table if p[1] == key and p[0] < round]:
                del table[place]

    def close(self) -> None:
        """Closes the connection to the server that adds up."""
        if self._connection is not None:
            self._connection.close()


# The server whose update runs on this thread, and its round. Several servers may live in one process.
updating: ContextVar[tuple[Peers, int]] = ContextVar("updating")


class ServerSums(Exchange):
    """Sums over all servers, within the update of one of them."""

    def __init__(self, ops: Sequence[Operator]):
        self._names = [(op.input("X")[0], op.output("Out")[0]) for op in ops]
        self._endpoints: list[str] = ops[0].attr("endpoints")
        self._key: str = ops[0].attr("key")

    def __call__(self, env: Mapping[str, Any]) -> dict[str, Any]:
        found = updating.get(None)
        if found is None:
            raise RuntimeError("server_sum runs within the update of a parameter server only")
        peers, round = found
        values = [np.asarray(env[name]) for name, _ in self._names]
        totals = peers.sum(round, self._key, self._endpoints, values)
        return {name: total for (_, name), total in zip(self._names, totals, strict=True)}


def _by_number(values: Sequence[np.ndarray]) -> dict[str, wire.Value]:
    return {str(i): value for i, value in enumerate(values)}
