"""DistributeTranspiler, under Fluid's module path."""

from refluid.transpiler.config import DistributeTranspilerConfig
from refluid.transpiler.dispatch import PSDispatcher, RoundRobin
from refluid.transpiler.distribute import DistributeTranspiler

__all__ = ["DistributeTranspiler", "DistributeTranspilerConfig", "PSDispatcher", "RoundRobin"]
