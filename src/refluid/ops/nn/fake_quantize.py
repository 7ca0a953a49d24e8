"""Quantisation in floating point: values rounded to the integers that fewer bits could hold.

A scale is the largest magnitude of a tensor: of the batch at hand (abs_max), of the last batches (range_abs_max) or a
moving average over batches. The ops have no gradients. Passes insert them behind the backs of gradient ops, which pass
their gradients straight through (`refluid.transpiler.quantization`).

Exact halves are rounded to even (differs: rounded-halves).
"""

from __future__ import annotations

import jax.numpy as jnp

from refluid.ops.core.registry import op

_TINY = 1e-30  # a smaller scale is that of zeros


def _levels(bits: int) -> int:
    """The largest integer of a signed number of so many bits; the smallest one is not used."""
    return 2 ** (bits - 1) - 1


def _quantised(x, scale, bits: int):
    """round(levels * x / scale), where values beyond the scale count as the scale."""
    inverse = 1 / jnp.where(scale > _TINY, scale, 1)
    return jnp.round(_levels(bits) * inverse * jnp.clip(x, -scale, scale))


def _largest(x):
    return jnp.max(jnp.abs(x)).reshape(1)


@op("fake_quantize_abs_max", inputs="X", outputs="Out OutScale", grad=None)
def fake_quantize_abs_max(x, *, bit_length=8):
    """round(levels * x / scale), scale = max |x|."""
    scale = _largest(x)
    return _quantised(x, scale, bit_length), scale


@op("fake_channel_wise_quantize_abs_max", inputs="X", outputs="Out OutScale", grad=None)
def fake_channel_wise_quantize_abs_max(x, *, bit_length=8):
    """fake_quantize_abs_max of each x[i] by itself."""
    scale = jnp.max(jnp.abs(x), axis=tuple(range(1, x.ndim)))
    return _quantised(x, scale.reshape(-1, *(1,) * (x.ndim - 1)), bit_length), scale


@op(
    "fake_quantize_range_abs_max",
    inputs="X InScale Iter? InScales?",
    outputs="Out OutScale OutScales?",
    grad=None,
    overwrites="InScales:OutScales",
)
def fake_quantize_range_abs_max(
    x, in_scale, iteration=None, scales=None, *, bit_length=8, window_size=10000, is_test=False
):
    """Quantises by the largest scale of the last ``window_size`` batches, which OutScales holds in a ring."""
    if is_test:
        return _quantised(x, in_scale, bit_length), in_scale, scales
    if iteration is None:
        raise ValueError("training needs Iter, the number of the batch")
    if scales is None:
        scales = jnp.zeros(window_size, x.dtype)
    current, iteration = _largest(x), iteration.reshape(())
    place = iteration % window_size
    leaving, scales = scales[place], scales.at[place].set(current[0])
    known = jnp.arange(window_size) < jnp.minimum(iteration, window_size)
    remaining = jnp.max(jnp.where(known, scales, 0)).reshape(1)
    left = jnp.abs(leaving - in_scale) < 1e-6  # the batch that had the largest scale
    scale = jnp.where(current > in_scale, current, jnp.where(left, remaining, in_scale))
    return _quantised(x, scale, bit_length), scale, scales


def _averaged(x, accumulated, state, rate: float):
    """The moving average of scales, its sum and its weight."""
    if accumulated is None or state is None:
        raise ValueError("training needs InAccum and InState, which the moving average is made of")
    accumulated, state = rate * accumulated + _largest(x), rate * state + 1
    return accumulated / state, accumulated, state


_AVERAGE = {"inputs": "X InScale InAccum? InState?", "outputs": "Out OutScale OutState? OutAccum?", "grad": None}


@op("fake_quantize_moving_average_abs_max", **_AVERAGE)
def fake_quantize_moving_average_abs_max(
    x, in_scale, accumulated=None, state=None, *, moving_rate=0.9, bit_length=8, is_test=False
):
    """Quantises by a moving average of the scales of batches."""
    if is_test:
        return _quantised(x, in_scale, bit_length), in_scale, state, accumulated
    scale, accumulated, state = _averaged(x, accumulated, state, moving_rate)
    return _quantised(x, scale, bit_length), scale, state, accumulated


@op("fake_quantize_dequantize_moving_average_abs_max", **_AVERAGE)
def fake_quantize_dequantize_moving_average_abs_max(
    x, in_scale, accumulated=None, state=None, *, moving_rate=0.9, bit_length=8, is_test=False
):
    """fake_quantize_moving_average_abs_max, scaled back to the range of x."""
    quantised, scale, state, accumulated = fake_quantize_moving_average_abs_max(
        x, in_scale, accumulated, state, moving_rate=moving_rate, bit_length=bit_length, is_test=is_test
    )
    return quantised * scale / _levels(bit_length), scale, state, accumulated


@op(
    "moving_average_abs_max_scale",
    inputs="X InAccum? InState?",
    outputs="Out OutScale OutState? OutAccum?",
    grad=None,
)
def moving_average_abs_max_scale(x, accumulated=None, state=None, *, moving_rate=0.9, is_test=False):
    """x as it is, and a moving average of the scales of batches."""
    if is_test:
        return x, None, state, accumulated
    scale, accumulated, state = _averaged(x, accumulated, state, moving_rate)
    return x, scale, state, accumulated


@op("fake_dequantize_max_abs", inputs="X Scale", outputs="Out", grad=None)
def fake_dequantize_max_abs(x, scale, *, max_range):
    """x * scale / max_range."""
    return x.astype(scale.dtype) * scale / max_range


@op("fake_channel_wise_dequantize_max_abs", inputs="X Scales*", outputs="Out", grad=None)
def fake_channel_wise_dequantize_max_abs(x, scales, *, quant_bits=(8,)):
    """x[i] * scale[i] / levels of a weight; or x[:, i] * scale[i] / levels, times a scale for all, of a result."""
    if len(scales) > len(quant_bits):
        raise ValueError(f"quant_bits must say the bits of each of the {len(scales)} Scales, not {list(quant_bits)}")
    axis = len(scales) - 1
    shape = [-1 if dim == axis else 1 for dim in range(x.ndim)]
    result = x.astype(scales[0].dtype) * scales[0].reshape(shape) / _levels(quant_bits[0])
    return result if axis == 0 else result * scales[1] / _levels(quant_bits[1])
