"""Conversions of 8-bit integers in saved models, as MKL-DNN and Fluid's own tables have them."""

from __future__ import annotations

import jax.numpy as jnp

from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in
from refluid.ops.nn.eight_bits import rounded


@op("quantize", inputs="Input", outputs="Output", grad=None, row_wise=True)
def quantize(x, *, Scale=1.0, is_negative_input=False):
    """Scale * x as int8, or as uint8 if no input is negative."""
    return rounded(x * jnp.asarray(Scale, x.dtype), jnp.int8 if is_negative_input else jnp.uint8)


@op("dequantize", inputs="Input", outputs="Output", grad=None, row_wise=True)
def dequantize(x, *, Scale=1.0):
    """x / Scale, in floating point."""
    return x.astype(jnp.float32) / jnp.float32(Scale)


@op("requantize", inputs="Input", outputs="Output", grad=None, row_wise=True)
def requantize(x, *, Scale_in=1.0, Scale_out=1.0):
    """Integers of another scale: x * Scale_out / Scale_in."""
    return rounded(x.astype(jnp.float32) * jnp.float32(Scale_out / Scale_in), x.dtype)


@op("dequantize_abs_max", inputs="X Scale", outputs="Out", grad=None, row_wise=sequences_only_in("X"))
def dequantize_abs_max(x, scale, *, max_range):
    """x * scale / max_range, in floating point."""
    return scale.reshape(()) * x.astype(scale.dtype) / jnp.asarray(max_range, scale.dtype)


@op("dequantize_log", inputs="X Dict", outputs="Out", grad=None, row_wise=sequences_only_in("X"))
def dequantize_log(x, table):
    """Looks magnitudes up in a table of 128: q stands for table[q], and q - 128 for its negative."""
    places = x.astype(jnp.int32)
    return jnp.where(places < 0, -table[places + 128], table[jnp.maximum(places, 0)])
