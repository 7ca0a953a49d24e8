"""DistributeTranspiler, under Fluid's module path."""

from refluid.transpiler.config import DistributeTranspilerConfig
from refluid.transpiler.dispatch import PSDispatcher, RoundRobin
from refluid.transpiler.distribute import DistributeTranspiler

__all__ = ["DistributeTranspiler", "DistributeTranspilerConfig", "PSDispatcher", "RoundRobin", "ServerRuntimeConfig"]


class ServerRuntimeConfig:
    """Threads of a server; kept, not used: a server here has as many as its trainers need."""

    def __init__(self) -> None:
        self._rpc_send_thread_num = 12
        self._rpc_get_thread_num = 12
        self._rpc_prefetch_thread_num = 12
