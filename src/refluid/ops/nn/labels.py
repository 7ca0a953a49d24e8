"""Labels as integers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def as_ids(labels: Any) -> Any:
    """``labels`` as integers, whatever width they have.

    Scripts declare labels without a dtype, hence as float32, and feed int64. Real Fluid reads the fed dtype only; here
    shapes are inferred from what is declared, so rules must take floats too.
    """
    return labels if jnp.issubdtype(labels.dtype, jnp.integer) else labels.astype(jnp.int64)
