"""dropout and its gradient, which reuses the forward op's mask."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid.ops.core.noise import keep_mask
from refluid.ops.core.registry import op


@op("dropout", inputs="X Seed?", outputs="Out Mask", random=True, row_wise=True)
def dropout(x, seed=None, *, dropout_prob=0.5, is_test=False, dropout_implementation="downgrade_in_infer", key):
    """x with elements zeroed at random. Mask is 1 where x was kept; there is none if ``is_test``."""
    upscales = _upscales(dropout_implementation)
    if not 0.0 <= dropout_prob <= 1.0:
        raise ValueError(f"dropout_prob must be between 0 and 1, not {dropout_prob}")
    if is_test:
        return _without_mask(x, dropout_prob, upscales), None
    if seed is not None:
        key = jax.random.key(seed.reshape(()).astype(jnp.uint32))
    keep = keep_mask(key, dropout_prob, x.shape)
    return _kept(x, keep, dropout_prob, upscales), keep.astype(jnp.uint8)


@op("dropout_grad", inputs="Mask? Out@GRAD", outputs="X@GRAD", lod=None, row_wise=True)
def dropout_grad(mask, out_grad, *, dropout_prob=0.5, dropout_implementation="downgrade_in_infer"):
    """The gradient where x was kept, zero elsewhere."""
    upscales = _upscales(dropout_implementation)
    if mask is None:
        return _without_mask(out_grad, dropout_prob, upscales)
    return _kept(out_grad, mask != 0, dropout_prob, upscales)


def _upscales(implementation: str) -> bool:
    if implementation not in ("downgrade_in_infer", "upscale_in_train"):
        raise ValueError(f"dropout_implementation must be downgrade_in_infer or upscale_in_train, not {implementation}")
    return implementation == "upscale_in_train"


def _kept(values: Any, keep: Any, dropout_prob: float, upscales: bool) -> Any:
    if upscales and dropout_prob < 1.0:
        values = values / (1.0 - dropout_prob)
    return jnp.where(keep, values, jnp.zeros((), values.dtype))


def _without_mask(values: Any, dropout_prob: float, upscales: bool) -> Any:
    """At test time, values are scaled by the keep probability, unless training already scaled them up."""
    return values if upscales else values * (1.0 - dropout_prob)
