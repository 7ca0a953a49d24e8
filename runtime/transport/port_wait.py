"""Waits for the ports of servers, without gRPC: `get_trainer_program(wait_port=True)`."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from refluid import flags
from refluid.errors import ServerError, ServersMissingError
from refluid.log import Log

_REMINDER_INTERVAL = 5.0  # seconds between two log lines about missing servers
_LONGEST_PAUSE = 1.0


def wait_for_ports(trainer: int, endpoints: Sequence[str]) -> None:
    """Returns when a server listens at every endpoint; logs meanwhile which are missing.

    Raises:
      ServersMissingError: some are still missing after FLAGS_rpc_deadline.
      ServerError: a host name cannot be resolved.
    """
    timeout = flags.read_flag("FLAGS_rpc_deadline") / 1000
    began = reminded = time.monotonic()
    missing, pause = list(endpoints), 0.05
    while missing := [endpoint for endpoint in missing if not _listens(trainer, endpoint)]:
        waited = time.monotonic() - began
        if waited >= timeout:
            raise ServersMissingError(trainer, missing, waited, "no server listens there yet")
        if time.monotonic() - reminded > _REMINDER_INTERVAL:
            reminded = time.monotonic()
            log = Log(role="trainer", trainer=trainer)
            log.warning("waiting for the ports of servers", missing=",".join(missing), seconds=waited)
        time.sleep(min(pause, timeout - waited))
        pause = min(1.5 * pause, _LONGEST_PAUSE)


def _listens(trainer: int, endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_LONGEST_PAUSE):
            return True
    except socket.gaierror as problem:
        raise ServerError(trainer, 0, endpoint, f"cannot resolve host {host!r}: {problem}") from None
    except OSError:
        return False
