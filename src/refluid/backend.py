"""What XLA is told in this process: how its client runs computations, and how it compiles them.

Whoever may be the first to need a device calls `prepare`, because JAX makes the client once. See
docs/decisions/0003-inline-dispatch.md and 0004-matrix-products.md.
"""

from __future__ import annotations

import os
from functools import cache

import jax

_ASYNC_DISPATCH = "jax_cpu_enable_async_dispatch"
# What XLA leaves to YNNPACK: by default matrix products, of which it computes the smaller ones on one core only.
_PRODUCTS = "xla_cpu_experimental_ynn_fusion_type"


@cache
def prepare() -> None:
    """Lets the calling thread run compiled steps on a CPU, unless JAX_CPU_ENABLE_ASYNC_DISPATCH=1 asks otherwise.

    By default another thread does, and small steps spend most of their time waking it and waiting for it. Where the
    client was made already, by the user's own JAX, this changes nothing.
    """
    chosen = os.environ.get(_ASYNC_DISPATCH.upper(), "0")  # JAX itself reads the environment for other settings only
    if chosen.lower() not in ("1", "true", "yes", "on"):
        jax.config.update(_ASYNC_DISPATCH, False)


def compiler_options(platform: str, shares_products: bool) -> dict[str, str]:
    """Options that a step is compiled with, beside those that the user sets in XLA_FLAGS.

    Args:
      shares_products: whether several cores should share the smaller matrix products of the step.
    """
    if platform != "cpu" or not shares_products or _PRODUCTS in os.environ.get("XLA_FLAGS", ""):
        return {}
    return {_PRODUCTS: ""} if len(os.sched_getaffinity(0)) > 1 else {}
