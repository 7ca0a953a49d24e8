"""Free ports, held until the process they are for listens on them.

Finding a free port and using it later is a race, unless the port stays taken in between. A socket that is bound but
does not listen keeps it: the system does not hand its port out as a free one, and on Linux a process that binds it by
number with SO_REUSEADDR, as servers do, still can.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

from refluid.runtime.launch.environment import split_endpoint

LOOPBACK = "127.0.0.1"
_ATTEMPTS = 64


class HeldPorts:
    """A set of ports that this process keeps free for its children."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def hold(self, host: str, port: int = 0) -> str:
        """Holds a port, by default any free one, and returns its endpoint.

        Raises:
            OSError: the port is in use, or ``host`` is not an address of this machine.
        """
        held = _bind(host, port)
        self._sockets.append(held)
        return f"{host}:{held.getsockname()[1]}"

    def hold_any(self, count: int, host: str = LOOPBACK) -> tuple[str, ...]:
        """Holds free ports of an address of this machine and returns their endpoints."""
        return tuple(self.hold(host) for _ in range(count))

    def hold_given(self, endpoints: Sequence[str]) -> None:
        """Holds the ports a user has chosen, so that a port in use is reported here and not in the log of a server."""
        for endpoint in endpoints:
            host, port = split_endpoint(endpoint)
            try:
                self.hold(host, int(port))
            except OSError as error:
                raise OSError(f"cannot listen on {endpoint}: {os.strerror(error.errno or 0)}") from error

    def hold_same_port(self, count: int) -> tuple[str, ...]:
        """Holds one port on ``count`` loopback addresses: 127.0.0.1, 127.0.0.2, and so on.

        Systems other than Linux do not have these addresses; there the ports differ instead.
        """
        hosts = [f"127.0.0.{number}" for number in range(1, count + 1)]
        for _ in range(_ATTEMPTS if count < 255 and _has_address(hosts[-1]) else 0):
            first = _bind(hosts[0], 0)
            port, sockets = first.getsockname()[1], [first]
            try:
                sockets += [_bind(host, port) for host in hosts[1:]]
            except OSError:  # the port is in use on one of the addresses
                for held in sockets:
                    held.close()
                continue
            self._sockets += sockets
            return tuple(f"{host}:{port}" for host in hosts)
        return self.hold_any(count)

    def release_for_children(self) -> None:
        """Releases the ports before children start, on systems where a held port cannot be listened on."""
        if not sys.platform.startswith("linux"):
            self.close()

    def close(self) -> None:
        """Releases all ports."""
        for held in self._sockets:
            held.close()
        self._sockets.clear()


def _bind(host: str, port: int) -> socket.socket:
    # A name may have several addresses; a server of that name binds the first one.
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    held = socket.socket(family, kind, protocol)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
    except OSError:
        held.close()
        raise
    return held


def _has_address(host: str) -> bool:
    try:
        _bind(host, 0).close()
    except OSError:
        return False
    return True
