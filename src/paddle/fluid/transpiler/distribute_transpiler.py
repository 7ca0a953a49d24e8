"""DistributeTranspiler, under Fluid's module path."""

from __future__ import annotations

from paddle.fluid.distribute_lookup_table import find_distributed_lookup_table
from paddle.fluid.transpiler.details.vars_distributed import VarDistributed, VarsDistributed
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

    @property
    def origin_program(self) -> Program:
        """The program that was transpiled, which is the trainer's now."""
        return self._trainer

    @property
    def trainer_num(self) -> int:
        """How many trainers there are."""
        return self.placement.trainers

    @property
    def pserver_endpoints(self) -> list[str]:
        """The endpoints of all servers."""
        return list(self.placement.endpoints)

    @property
    def distributed_mode(self) -> DistributedMode:
        """How trainers and servers work together."""
        return self.placement.mode

    @property
    def sync_mode(self) -> bool:
        """Whether every update waits for all trainers."""
        return self.distributed_mode is DistributedMode.SYNC

    @property
    def table_name(self) -> str | None:
        """The table with ``is_distributed=True``, or None."""
        return None if self._placement is None else find_distributed_lookup_table(self._original)

    @property
    def has_distributed_lookup_table(self) -> bool:
        """Whether the program has a table with ``is_distributed=True``."""
        return self.table_name is not None

    @property
    def vars_overview(self) -> VarsDistributed:
        """Where each slice of each parameter lives."""
        return VarsDistributed.of(self.placement, self._original)

    def get_distributed_vars_by_ep(self, endpoint: str) -> list[VarDistributed]:
        """Returns the slices that the server at ``endpoint`` holds."""
        return self.vars_overview.get_distributed_vars_by_ep(endpoint)

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
