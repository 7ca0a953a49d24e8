"""The communicator of async training, as scripts steer it. The work is done by the runtime, behind the steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from refluid import flags
from refluid.ir import Program

__all__ = ["Communicator"]


class Communicator:
    """Sends gradients and receives parameters while a trainer computes.

    A distributed program starts its communication with its first step; `stop` ends it, after sending what waits, and
    `start` lets it go on.

    Args:
      program: the trainer's program.
      mode: its training mode, one of ``DistributedMode``; the program says the same.
      kwargs: accepted; the program has it all.
      envs: flags for the communication, such as ``{"communicator_max_merge_var_num": 4}``.
      vars_info, trainers, geo_sgd_need_push_nums: what Fluid 1.6 passed; the program has it all.
    """

    def __init__(
        self,
        program: Program,
        mode: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        envs: Mapping[str, Any] | None = None,
        vars_info: Any = None,
        trainers: Any = None,
        geo_sgd_need_push_nums: Any = None,
    ) -> None:
        if not isinstance(program, Program):
            raise TypeError(f"Communicator takes the trainer's Program, not {type(program).__name__}")
        self._envs = dict(envs or {})
        self._started = False

    def start(self) -> None:
        """Lets communication run."""
        for name, value in self._envs.items():
            flags.write_flag(f"FLAGS_{name}", value)
        self._started = True
        for communicator in _communicators():
            communicator.start()

    def stop(self) -> None:
        """Sends what waits to be sent, and stops."""
        self._started = False
        for communicator in _communicators():
            communicator.stop()

    def is_running(self) -> bool:
        """Whether communication runs, or will from the first step on."""
        return self._started and all(communicator.is_running for communicator in _communicators())

    def recv(self) -> None:
        """Receives the servers' parameters now; the next step uses them."""
        for communicator in _communicators():
            communicator.receive()


def _communicators() -> Iterator[Any]:
    """Those of this process. A program that has not run yet has none, and the runtime may not even be loaded."""
    runtime = sys.modules.get("refluid.runtime.trainer.session")
    session = runtime.current() if runtime is not None else None
    return iter(()) if session is None else iter(session.communicators)
