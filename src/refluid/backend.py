"""XLA's client for this process: what must be settled before JAX makes it, which it does once.

Whoever may be the first to need a device calls `prepare`. See docs/decisions/0003-inline-dispatch.md.
"""

from __future__ import annotations

import os
from functools import cache

import jax

_ASYNC_DISPATCH = "jax_cpu_enable_async_dispatch"


@cache
def prepare() -> None:
    """Lets the calling thread run compiled steps on a CPU, unless JAX_CPU_ENABLE_ASYNC_DISPATCH=1 asks otherwise.

    By default another thread does, and small steps spend most of their time waking it and waiting for it. Where the
    client was made already, by the user's own JAX, this changes nothing.
    """
    chosen = os.environ.get(_ASYNC_DISPATCH.upper(), "0")  # JAX itself reads the environment for other settings only
    if chosen.lower() not in ("1", "true", "yes", "on"):
        jax.config.update(_ASYNC_DISPATCH, False)
