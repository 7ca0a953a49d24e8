"""Joining: this process becomes a rank of a job, and its JAX devices part of the job's devices.

Rank 0 listens at the first endpoint, where all ranks connect; it tells them where JAX's coordination service is. Every
rank also listens at its own endpoint, as in Fluid, so that a port in use and an address of another machine are noticed.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from refluid import flags
from refluid.access import check_plaintext
from refluid.errors import RankError
from refluid.log import Log
from refluid.runtime.collective.arrays import await_devices
from refluid.runtime.collective.group import Group
from refluid.runtime.collective.hub import Hub
from refluid.runtime.collective.roster import Patience
from refluid.runtime.collective.world import World, serve
from refluid.runtime.launch.environment import split_endpoint


@dataclass
class _Joined:
    """What this process has joined."""

    group: Group
    world: World | None
    listener: socket.socket
    hub: Hub | None


_TELL = 15.0  # seconds for a rank that cannot join to reach rank 0
_joined: _Joined | None = None


def current() -> Group | None:
    """The group that this process has joined, or None."""
    return None if _joined is None else _joined.group


def join(endpoints: Sequence[str], rank: int) -> Group:
    """Makes this process rank ``rank`` of those at ``endpoints``; returns when all are here.

    Joining again with the same endpoints does nothing. JAX is restarted if it was in use already: arrays of scopes
    move to the new devices when a program uses them.

    Raises:
      RankError: a rank is missing, has other endpoints or a port in use.
      RuntimeError: the process has joined others before.
    """
    global _joined
    endpoints = tuple(endpoints)
    _check(endpoints, rank)
    if _joined is not None:
        if (_joined.group.endpoints, _joined.group.rank) != (endpoints, rank):
            raise RuntimeError(
                f"this process is rank {_joined.group.rank} of {','.join(_joined.group.endpoints)} already; "
                f"it cannot join {','.join(endpoints)} as rank {rank} as well"
            )
        return _joined.group
    _joined = _join(endpoints, rank)
    return _joined.group


def leave() -> None:
    """Leaves the group, if there is one. JAX then has the devices of this process only."""
    global _joined
    if _joined is None:
        return
    left, _joined = _joined, None
    atexit.unregister(leave)
    _close(left, restart=True)


def _join(endpoints: tuple[str, ...], rank: int) -> _Joined:
    patience = Patience.from_environment(flags.read_flag("FLAGS_rpc_deadline") / 1000)
    try:
        listener = _listen(endpoints, rank)
    except RankError as error:
        _tell(error, endpoints, rank)
        raise
    hub = service = None
    if rank == 0:
        host = split_endpoint(endpoints[0])[0]
        port, service = serve(len(endpoints), host)
        welcome = {"coordinator": [host.strip("[]"), port]}
        hub = Hub(listener, endpoints, welcome, patience)
    joined = None
    try:
        group = Group(endpoints, rank, patience)
        joined = _Joined(group, None, listener, hub)
        host, port = group.await_all()["coordinator"]
        hosts = [split_endpoint(endpoint)[0].strip("[]") for endpoint in endpoints]
        joined.world = World.start((host, port), hosts, rank, service)
        group.on_accelerators = jax.default_backend() != "cpu"
        _tell_of_exceptions(group)
        atexit.register(_at_exit)
        return joined
    except BaseException:
        if joined is not None:
            _close(joined, restart=False)
        else:
            listener.close()
        raise


def _tell(error: RankError, endpoints: tuple[str, ...], rank: int) -> None:
    """Lets the others know why this rank cannot join, if rank 0 can be reached soon."""
    if rank == 0:
        return
    Log(role="trainer", rank=rank).error("cannot join", reason=str(error))
    with contextlib.suppress(RankError):
        Group(endpoints, rank, Patience(joining=_TELL), cannot_join=error.problem).leave()


def _check(endpoints: tuple[str, ...], rank: int) -> None:
    for endpoint in endpoints:
        split_endpoint(endpoint)
    if not 0 <= rank < len(endpoints):
        raise ValueError(f"rank {rank} does not exist: there are {len(endpoints)} endpoints ({','.join(endpoints)})")
    twice = next((endpoint for endpoint in endpoints if endpoints.count(endpoint) > 1), None)
    if twice is not None:
        raise ValueError(f"two ranks have the same endpoint, {twice}")


def _listen(endpoints: tuple[str, ...], rank: int) -> socket.socket:
    """Listens at the endpoint of this rank."""
    host, port = split_endpoint(endpoints[rank])
    check_plaintext(endpoints[rank], tls_helps=False)  # neither JAX's coordination service nor gloo has TLS
    try:
        address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        listener = socket.socket(*address[:3])
    except OSError as error:
        raise RankError(rank, rank, endpoints[rank], f"cannot listen: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address[4])
        listener.listen(len(endpoints))
    except OSError as error:
        listener.close()
        hint = "; is it an address of this machine?" if error.errno == errno.EADDRNOTAVAIL else ""
        problem = f"cannot listen: {os.strerror(error.errno or 0)}{hint}"
        raise RankError(rank, rank, endpoints[rank], problem) from error
    return listener


def _close(joined: _Joined, restart: bool) -> None:
    group = joined.group
    if joined.world is not None and not group.is_broken:
        await_devices()
    group.leave()
    if joined.world is not None:
        joined.world.stop(broken=group.is_broken, restart=restart)
    if joined.hub is not None:
        joined.hub.stop(None if group.failure is not None else group.steps)
    with contextlib.suppress(OSError):
        joined.listener.close()


def _at_exit() -> None:
    global _joined
    if _joined is not None:
        left, _joined = _joined, None
        _close(left, restart=False)


def _tell_of_exceptions(group: Group) -> None:
    """Lets the others know which exception ends this process."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        group.fail(f"{kind.__name__}: {error}".splitlines()[0])

    sys.excepthook = hook
