"""Products of a convolution as XLA's convolution (lax), as one dot (dot, columns) and as shifted views (shifts)."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.nn.conv.offsets import Blocks
from refluid.ops.nn.conv.window import as_rows, dot, kernel_first, padded, pads_of_transpose, view

# lax: XLA's own convolution


def _dimension_numbers(rank: int) -> lax.ConvDimensionNumbers:
    space = tuple(range(1, rank + 1))
    data, filters = (0, rank + 1, *space), (rank + 1, rank, *range(rank))
    return lax.ConvDimensionNumbers(data, filters, data)


def correlate_lax(x, w, window):
    return lax.conv_general_dilated(
        x,
        w,
        window.strides,
        window.pads,
        rhs_dilation=window.dilations,
        dimension_numbers=_dimension_numbers(len(window.kernel)),
        feature_group_count=window.groups,
    )


def spread_lax(g, w, window, dims):
    flipped = lax.rev(w, range(len(window.kernel)))
    *kernel, channels, filters = w.shape
    grouped = flipped.reshape(*kernel, channels, window.groups, filters // window.groups)
    swapped = jnp.swapaxes(grouped, -1, -3).reshape(*kernel, filters // window.groups, window.groups * channels)
    return lax.conv_general_dilated(
        g,
        swapped,
        (1,) * len(dims),
        pads_of_transpose(window),
        lhs_dilation=window.strides,
        rhs_dilation=window.dilations,
        dimension_numbers=_dimension_numbers(len(dims)),
        feature_group_count=window.groups,
    )


def weight_gradient_lax(x, g, window):
    w = jax.ShapeDtypeStruct((*window.kernel, x.shape[-1] // window.groups, g.shape[-1]), x.dtype)
    return jax.linear_transpose(lambda w: correlate_lax(x, w, window), w)(g)[0]


# dot: one-element kernels


def _taken(x, window):
    """The elements of x that a one-element kernel reads."""
    x = padded(x, window)
    return lax.slice(x, (0,) * x.ndim, x.shape, (1, *window.strides, 1))


def correlate_dot(x, w, window):
    taken = _taken(x, window)
    return dot(as_rows(taken), kernel_first(w)[0], 1, 0).reshape(*taken.shape[:-1], w.shape[-1])


def spread_dot(g, w, window, dims):
    out = dot(as_rows(g), kernel_first(w)[0], 1, 1).reshape(*g.shape[:-1], w.shape[-2])
    sides = zip(window.pads, window.strides, strict=True)
    config = [(0, 0, 0), *((-low, -high, stride - 1) for (low, high), stride in sides), (0, 0, 0)]
    return lax.pad(out, jnp.zeros((), out.dtype), config)


def weight_gradient_dot(x, g, window):
    return dot(as_rows(_taken(x, window)), as_rows(g), 0, 0).reshape(*window.kernel, x.shape[-1], g.shape[-1])


# columns: a single dot for all kernel elements, over one copy of the input per element


def correlate_columns(x, w, window):
    positions, x = window.positions(x.shape[1:-1]), padded(x, window)
    # A gather, because concatenating that many slices of few channels copies element by element.
    by_dim = zip(positions, window.strides, window.reach, window.dilations, x.shape[1:-1], strict=True)
    places = np.zeros((1, 1), int)
    for n, stride, reach, dilation, dim in by_dim:
        place = np.arange(n)[:, None] * stride + np.arange(0, reach, dilation)
        places = places[:, None, :, None] * dim + place[None, :, None, :]
        places = places.reshape(places.shape[0] * n, -1)
    pixels = x.reshape(x.shape[0], -1, x.shape[-1])
    columns = pixels.at[:, places.reshape(-1).astype(np.int32)].get(mode="promise_in_bounds")
    out = dot(columns.reshape(x.shape[0] * len(places), -1), as_rows(w), 1, 0)
    return out.reshape(x.shape[0], *positions, w.shape[-1])


def weight_gradient_columns(x, g, window):
    # Channels first, so that rows of the copy are written, and columns of g read, in order.
    channels_first = jnp.moveaxis(padded(x, window), -1, 0)
    views = [view(channels_first, offset, window, g.shape[1:-1], lead=2) for offset in window.offsets()]
    columns = jnp.stack(views).reshape(len(views) * x.shape[-1], -1)
    return dot(columns, as_rows(g), 1, 0).reshape(*window.kernel, x.shape[-1], g.shape[-1])


# shifts: depthwise (as many groups as channels), as elementwise products of shifted views


def _repeated(x, times):
    """x with each channel repeated ``times`` times."""
    return x if times == 1 else jnp.repeat(x, times, axis=-1)


def _folded(x, times):
    """The sum over each run of ``times`` channels."""
    return x if times == 1 else x.reshape(*x.shape[:-1], -1, times).sum(-1)


def correlate_shifts(x, w, window):
    positions, times = window.positions(x.shape[1:-1]), w.shape[-1] // x.shape[-1]
    x = padded(x, window)
    views = (_repeated(view(x, offset, window, positions), times) for offset in window.offsets())
    return sum(seen * row[0] for seen, row in zip(views, kernel_first(w), strict=True))


def spread_shifts(g, w, window, dims):
    times = w.shape[-1] // window.groups
    if any(stride > 1 for stride in window.strides):
        blocks = Blocks(window, g.shape[1:-1])
        total = blocks.zeros(g.shape[0], window.groups, g.dtype)
        for row, place in zip(kernel_first(w), blocks.places(), strict=True):
            total = blocks.add(total, place, _folded(g * row[0], times))
        return blocks.join(total)
    around = replace(window, pads=pads_of_transpose(window))
    return _folded(correlate_shifts(g, lax.rev(w, range(len(dims))), around), times)


def weight_gradient_shifts(x, g, window):
    positions, times = g.shape[1:-1], g.shape[-1] // x.shape[-1]
    x = padded(x, window)
    # Summed in two steps: XLA vectorises the sum of whole blocks, but adds rows of a fused product one by one.
    parts = next(n for n in (8, 7, 6, 5, 4, 3, 2, 1) if x.shape[0] % n == 0)

    def product(offset):
        seen = _repeated(view(x, offset, window, positions), times)
        return (seen * g).reshape(parts, -1, g.shape[-1])

    blocks = jnp.stack([sum(product(offset)[i] for i in range(parts)) for offset in window.offsets()])
    return lax.optimization_barrier(blocks).sum(1).reshape(*window.kernel, 1, g.shape[-1])
