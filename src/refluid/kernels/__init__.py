"""Kernels for CPUs, compiled by numba and called from inside XLA's computations.

XLA's CPU backend runs a loop over time steps on one core, whatever the loop does. Here such loops are plain loops over
arrays, cut into parts that share nothing and that run on XLA's own threads. ``REFLUID_KERNELS=0`` leaves everything to
XLA. See docs/decisions/0005-kernels.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module

_allowed = ContextVar("kernels allowed", default=False)


@contextmanager
def allowed(value: bool = True) -> Iterator[None]:
    """Lets rules use kernels: what is traced inside will be compiled for this machine's CPU, and nothing else."""
    token = _allowed.set(value)
    try:
        yield
    finally:
        _allowed.reset(token)


def are_allowed() -> bool:
    """Whether a rule may use a kernel instead of operations that any XLA backend has."""
    return _allowed.get() and _work_here()


@cache
def _work_here() -> bool:
    if os.environ.get("REFLUID_KERNELS") == "0":
        return False
    try:
        import_module("refluid.kernels.calls")  # loads numba, which takes its time
    except (ImportError, OSError, RuntimeError) as error:  # numba's own, if it finds no folder for what it compiles
        warnings.warn(f"recurrences will run on one core, as kernels cannot be used: {error}", stacklevel=2)
        return False
    return True
