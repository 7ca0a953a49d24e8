"""Chooses the form of each product of a convolution; bench/lowerings.py measures the forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from refluid import kernels
from refluid.ops.nn.conv.window import Window


class Forms(NamedTuple):
    """The form of each product: a key of `CORRELATE`, `SPREAD` and `WEIGHT_GRADIENT` in `products`."""

    correlate: str
    spread: str
    weight_gradient: str


def choose(window: Window, batch: Any, dims: Sequence[int], channels: int, filters: int, dtype: Any) -> Forms:
    """The forms that measured fastest on CPU, for ``batch`` images of size ``dims`` with ``channels``.

    A symbolic batch size, as in an exported model, is treated as large.

    Milliseconds on one AVX2 core (bench/lowerings.py), for correlate / spread / weight_gradient:

        kernel   dims      channels    batch   lax                   offsets               others
        5x5      28 x 28   1 -> 20     64       1.0 / 14.2 /  3.1     9.1 /  2.9 /  5.9                1.3 as columns
        5x5      28 x 28   1 -> 6      64       3.3 /  9.4 /  1.3     2.3 /  3.2 /  4.3    1.7       / 1.6 as columns
        5x5      12 x 12   20 -> 50    64       4.0 / 11.6 /  5.5     7.7 /  3.8 /  6.0
        5x5 same 16 x 16   64 -> 64    32      21.1 / 21.2 / 45.0    28.9 / 23.6 / 37.6
        3x3 same 32 x 32   16 -> 16    32       3.5 /  3.5 / 10.1     5.2 /  4.8 /  6.4
        3x3 same 56 x 56   64 -> 64    8       23.9 / 25.3 / 75.6    37.5 / 29.9 / 42.7
        3x3 same 28 x 28   8 -> 8      16       0.7 /  0.7 /  0.5     1.2 /  0.7 /  0.9
        3x3 / 2  16 x 16   32 -> 64    32       1.4 /  1.5 /  2.9     1.8 /  1.9 /  2.3
        1x1      16 x 16   64 -> 128   32       2.2 /  2.3 / 13.8                          1.8 / 2.3 / 2.0 as dot
        3x3 same 16 x 16   64, each    32      11.3 / 11.4 /  6.2                          0.3 / 0.4 / 0.9 as shifts
                                                                                           0.6 / 0.5 / 0.6 as kernel
        3x3 same 150x150   32, each    4       74.8 / 77.0 / 17.9                          2.0 / 2.4 /  36 as shifts
                                                                                           1.9 / 2.1 / 2.0 as kernel
        3x3 / 2  150x150   64, each    4       31.6 /  382 / 22.7                          2.6 / 6.7 / 6.1 as shifts
                                                                                           1.6 / 1.6 / 2.0 as kernel
        3x3 same 16 x 16   32, in 4    32       4.5 /  5.0 /  241                          2.3 / 3.3 / 3.7 as split
        3x3 same 14 x 14   128, in 32  8        5.9 /  6.2 / 1230                                      4.2 as batch
        3x3x3    8x16x16   16 -> 32    4       14.5 / 27.3 / 25.3     6.0 /  4.7 /  5.4
    """
    if not kernels.on_cpu() or dtype not in (jnp.float32, jnp.float64):
        return Forms("lax", "lax", "lax")
    size, groups = math.prod(window.kernel), window.groups
    if groups > 1:
        if groups == channels and size <= 64:
            return _depthwise(window, channels, filters, dtype)
        return Forms("split", "split", "split") if groups <= 8 else Forms("lax", "lax", "batch")
    if size == 1:
        return Forms("dot", "dot", "dot")
    if dtype == jnp.float64 or len(dims) > 2:  # XLA convolves these in plain loops
        return Forms("offsets", "offsets", "offsets")
    positions = math.prod(window.positions(dims))
    copied = size <= 64 and isinstance(batch, int) and batch * positions * size * channels <= 1 << 24
    # XLA uses a library for images, but not with 16 or fewer channels on either side.
    correlate_form = "columns" if copied and size > 9 and channels <= 8 and filters <= 16 else "lax"
    # As a convolution, spread computes a product per element of dims rather than per position.
    wasteful = math.prod(dims) > 1.3 * positions and set(window.strides) == {1}
    if channels <= 4:
        weight_form = "columns" if copied else "offsets"
    else:
        weight_form = "lax" if channels < 16 else "offsets"
    return Forms(correlate_form, "offsets" if wasteful else "lax", weight_form)


def _depthwise(window: Window, channels: int, filters: int, dtype: Any) -> Forms:
    # Shifts may be faster alone, but XLA fuses them into each sum that a batch_norm makes of the result. With
    # batch_norm and relu, both ways, the 32 channels above take 70 ms as shifts and 10 ms by kernels
    # (bench/lowerings.py block).
    suits_kernel = dtype == jnp.float32 and channels == filters and len(window.kernel) == 2
    form = "kernel" if suits_kernel and kernels.find("depthwise") else "shifts"
    return Forms(form, form, form)
