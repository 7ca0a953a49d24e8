"""Kernels for CPUs, compiled by numba and called from inside XLA's computations.

XLA's CPU backend runs every loop over time steps on one core, and many matrix products too. Here they are plain loops
over arrays, split into independent parts that run on XLA's own threads. ``REFLUID_KERNELS=0`` leaves everything to XLA.
See docs/decisions/0005-kernels.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any

import jax

_allowed = ContextVar("kernels allowed", default=False)


@contextmanager
def allowed(value: bool = True) -> Iterator[None]:
    """Lets rules use kernels; code traced inside must be compiled for this machine's CPU only."""
    token = _allowed.set(value)
    try:
        yield
    finally:
        _allowed.reset(token)


def enabled() -> bool:
    """Whether a rule may use kernels instead of operations that any XLA backend has. If so, shapes are known."""
    return _allowed.get() and os.environ.get("REFLUID_KERNELS") != "0"


def on_cpu() -> bool:
    """Whether the code being traced runs on a CPU, where a rule may choose another form of an operation."""
    device: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return (jax.default_backend() if device is None else getattr(device, "platform", device)) == "cpu"


def find(name: str) -> Any:
    """The module of a kernel, or None if it cannot be used."""
    return _load(name) if enabled() else None


@cache
def _load(name: str) -> Any:
    try:
        return import_module(f"refluid.kernels.{name}")  # loads numba and compiles: slow
    except Exception as error:  # noqa: BLE001 - whatever is wrong with numba or its cache, XLA computes the same
        warnings.warn(f"{name} runs more slowly, because its kernel cannot be used: {error}", stacklevel=2)
        return None
