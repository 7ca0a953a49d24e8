"""Passes over programs, under Fluid's module path."""

from paddle.fluid.transpiler.memory_optimization_transpiler import memory_optimize, release_memory

__all__ = ["memory_optimize", "release_memory"]
