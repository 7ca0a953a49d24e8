"""Dispatchers of parameter slices to servers, under Fluid's module path."""

from refluid.transpiler.dispatch import HashName, PSDispatcher, RoundRobin

__all__ = ["HashName", "PSDispatcher", "RoundRobin"]
