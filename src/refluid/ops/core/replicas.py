"""The replicas of a step: how many copies of a program run together, and which of them a rule is traced for.

A step over several devices is traced once, for all of them, under a mapped axis. Rules that communicate ask `count()`
and use `jax.lax` collectives over `AXIS`; with one replica there is no axis, and nothing to communicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

AXIS = "replicas"

_count: ContextVar[int] = ContextVar("replicas", default=1)


def count() -> int:
    """How many replicas the rule is traced for; 1 outside of a step over several devices."""
    return _count.get()


def index() -> Any:
    """The number of the replica, from 0: a traced int32 scalar, or 0 where there is only one."""
    return jax.lax.axis_index(AXIS) if count() > 1 else jnp.int32(0)


@contextmanager
def traced_for(replicas: int) -> Iterator[None]:
    """Traces what is inside for that many replicas; the caller maps `AXIS`."""
    token = _count.set(replicas)
    try:
        yield
    finally:
        _count.reset(token)
