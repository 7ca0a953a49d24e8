"""DistributeTranspiler, under Fluid's module path."""

from refluid.transpiler.config import DistributeTranspilerConfig, ServerRuntimeConfig
from refluid.transpiler.config import Mode as DistributedMode
from refluid.transpiler.dispatch import PSDispatcher, RoundRobin
from refluid.transpiler.distribute import DistributeTranspiler

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "DistributedMode",
    "PSDispatcher",
    "RoundRobin",
    "ServerRuntimeConfig",
]
