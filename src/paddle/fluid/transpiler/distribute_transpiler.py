"""DistributeTranspiler, under Fluid's module path."""

from __future__ import annotations

from refluid.ir import Program
from refluid.ir.modes import Mode as DistributedMode
from refluid.transpiler import distribute
from refluid.transpiler.config import DistributeTranspilerConfig, ServerRuntimeConfig
from refluid.transpiler.dispatch import PSDispatcher, RoundRobin

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "DistributedMode",
    "PSDispatcher",
    "RoundRobin",
    "ServerRuntimeConfig",
]


class DistributeTranspiler(distribute.DistributeTranspiler):
    """Turns the program of one machine into those of trainers and parameter servers, or of trainers alone.

    Args:
      config: a `DistributeTranspilerConfig`; the default one trains in sync mode with sliced parameters.
    """

    _ready: tuple[str, ...] = ()  # servers that were seen to listen

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """The program of this trainer, the same one each time.

        Args:
          wait_port: whether to return only when all servers listen, logging meanwhile which do not. Without it, the
            trainer waits when it first needs them.
        """
        program = super().get_trainer_program()
        endpoints = self._ready if self._job is not None else self.placement.endpoints
        if wait_port and self._ready != endpoints:
            from refluid.runtime.transport.port_wait import wait_for_ports

            wait_for_ports(self.trainer_id, endpoints)
            self._ready = endpoints
        return program
