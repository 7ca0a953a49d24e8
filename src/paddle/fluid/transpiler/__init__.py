"""Passes over programs, under Fluid's module path."""

from paddle.fluid.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig
from paddle.fluid.transpiler.memory_optimization_transpiler import memory_optimize, release_memory
from paddle.fluid.transpiler.ps_dispatcher import HashName, RoundRobin

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "HashName",
    "RoundRobin",
    "memory_optimize",
    "release_memory",
]
