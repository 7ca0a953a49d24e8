"""Memory reuse. XLA plans the memory of a whole step when it compiles it, so there is nothing left to do here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from refluid.ir import Program

__all__ = ["memory_optimize", "release_memory"]


def memory_optimize(
    input_program: Program,
    skip_opt_set: Iterable[Any] | None = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Accepted and ignored: the compiled step already reuses buffers."""
    _check(input_program)


def release_memory(input_program: Program, skip_opt_set: Iterable[Any] | None = None) -> None:
    """Accepted and ignored: the compiled step already frees temporaries early."""
    _check(input_program)


def _check(program: Program) -> None:
    if not isinstance(program, Program):
        raise TypeError(f"memory optimisation takes a Program, not {type(program).__name__}")
