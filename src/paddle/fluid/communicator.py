"""The communicator of async training, as scripts control it. The runtime does the work in the background."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from refluid import flags
from refluid.ir import Program

__all__ = ["Communicator"]


class Communicator:
    """Sends gradients and receives parameters while a trainer computes.

    A distributed program starts to communicate with its first step; `stop` sends what is queued and ends communication,
    and `start` resumes it.

    Args:
      program: the trainer's program.
      mode: its training mode, one of ``DistributedMode``; ignored, as the program has it.
      kwargs: accepted and ignored.
      envs: flags for the communication, such as ``{"communicator_max_merge_var_num": 4}``.
      vars_info, trainers, geo_sgd_need_push_nums: arguments of Fluid 1.6, accepted and ignored.
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
        """Starts or resumes communication."""
        for name, value in self._envs.items():
            flags.write_flag(f"FLAGS_{name}", value)
        self._started = True
        for communicator in _communicators():
            communicator.start()

    def stop(self) -> None:
        """Sends what is queued, and stops."""
        self._started = False
        for communicator in _communicators():
            communicator.stop()

    def is_running(self) -> bool:
        """Whether communication runs, or will run from the first step on."""
        return self._started and all(communicator.is_running for communicator in _communicators())

    def recv(self) -> None:
        """Receives the servers' parameters now; the next step uses them."""
        for communicator in _communicators():
            communicator.receive()


def _communicators() -> Iterator[Any]:
    """The exchanges of this process that queue gradients; none, and no runtime loaded, before a program has run."""
    runtime = sys.modules.get("refluid.runtime.trainer.session")
    session = runtime.current() if runtime is not None else None
    return iter(()) if session is None else iter(session.communicators)
