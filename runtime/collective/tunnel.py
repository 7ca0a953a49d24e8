"""A connection to JAX's coordination service that survives the end of the service.

JAX aborts a process at once, with a message that names nobody, when the service in the process of rank 0 is gone. So
its client talks to a port of its own process, which passes everything on. When the other end closes, this end stays
open and silent; who has ended is found out by `group`, which ends the process with a better message.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Tunnel:
    """Passes on connections to a port of this process."""

    def __init__(self, host: str, port: int):
        self._target = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        _start(self._accept)

    def close(self) -> None:
        """Closes both ends."""
        for connection in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target, timeout=10)
            except OSError:
                return
            far.settimeout(None)
            self._open += [near, far]
            _start(lambda near=near, far=far: _pass_on(near, far, closes=True))
            _start(lambda near=near, far=far: _pass_on(far, near, closes=False))


def _pass_on(source: socket.socket, target: socket.socket, closes: bool) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    if closes:
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _start(target: Callable[[], None]) -> None:
    threading.Thread(target=target, name="collective-tunnel", daemon=True).start()
