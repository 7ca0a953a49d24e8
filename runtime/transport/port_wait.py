"""Waiting for the ports of servers, without a word of gRPC: what `get_trainer_program(wait_port=True)` does."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from refluid import flags
from refluid.errors import ServerError, ServersMissingError
from refluid.log import Log

_REMIND = 5.0  # seconds between two remarks about missing servers
_LONGEST_PAUSE = 1.0


def wait_for_ports(trainer: int, endpoints: Sequence[str]) -> None:
    """Returns when somebody listens at every endpoint, and says meanwhile where nobody does.

    Raises:
      ServersMissingError: some are still missing after FLAGS_rpc_deadline.
      ServerError: a host is not known here, which waiting cannot mend.
    """
    patience = flags.read_flag("FLAGS_rpc_deadline") / 1000
    began = reminded = time.monotonic()
    missing, pause = list(endpoints), 0.05
    while missing := [endpoint for endpoint in missing if not _listens(trainer, endpoint)]:
        waited = time.monotonic() - began
        if waited > patience:
            raise ServersMissingError(trainer, missing, waited, "no server listens there yet")
        if time.monotonic() - reminded > _REMIND:
            reminded = time.monotonic()
            log = Log(role="trainer", trainer=trainer)
            log.warning("waiting for the ports of servers", missing=",".join(missing), seconds=waited)
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)


def _listens(trainer: int, endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_LONGEST_PAUSE):
            return True
    except socket.gaierror as problem:
        raise ServerError(trainer, 0, endpoint, f"the host {host!r} is not known here: {problem}") from None
    except OSError:
        return False
