"""Pooling: the maximum or the mean over windows of images and volumes.

Arrays are channels-last, as in `conv`. A window is reduced by elementwise operations on one strided view per window
element, which XLA fuses into one vectorised loop; the gradients are elementwise too, over the input cut into
stride-sized blocks. reduce_window and its gradient, select_and_scatter, take 5 to 30 times as long on CPU
(bench/lowerings.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.core.gradients import custom_vjp
from refluid.ops.core.registry import op
from refluid.ops.nn.conv.window import Window, as_given, channels_last, explicit_pads
from refluid.ops.nn.eight_bits import is_8_bit, rounded

MANY = 256  # window elements; beyond this, one op per element makes programs too long to compile


def _window(dims, ksize, strides, paddings, padding_algorithm, ceil_mode) -> Window:
    """The window, padded so that its last position fits.

    As in C, the number of positions is rounded towards zero, so that a window which is larger than the padded image, by
    less than a stride, still has one.
    """
    if len(ksize) != len(dims) or len(strides) != len(dims):
        raise ValueError(f"ksize {list(ksize)} and strides {list(strides)} must hold {len(dims)} numbers each")
    pads = explicit_pads(paddings, padding_algorithm, dims, ksize, strides)
    sides = zip(dims, ksize, strides, pads, strict=True)
    room = [n + low + high - k + (s - 1 if ceil_mode else 0) for n, k, s, (low, high) in sides]
    positions = tuple(int(free / s) + 1 for free, s in zip(room, strides, strict=True))
    if min(positions) <= 0:
        raise ValueError(f"a window of {list(ksize)} does not fit into {list(dims)} with padding {list(pads)}")
    return Window(tuple(ksize), tuple(strides), (1,) * len(dims), pads).fitted(dims, positions)


def _views(x, window, fill):
    """For each window element, in row-major order, the view of padded x it reads."""
    positions = window.positions(x.shape[1:-1])
    x = lax.pad(x, jnp.asarray(fill, x.dtype), [(0, 0, 0), *((*pad, 0) for pad in window.pads), (0, 0, 0)])
    for offset in window.offsets():
        limit = [o + (n - 1) * s + 1 for o, n, s in zip(offset, positions, window.strides, strict=True)]
        yield lax.slice(x, (0, *offset, 0), (x.shape[0], *limit, x.shape[-1]), (1, *window.strides, 1))


def _is_global(x, window) -> bool:
    return x.shape[1:-1] == window.kernel and not any(itertools.chain.from_iterable(window.pads))


def _space(x) -> tuple[int, ...]:
    return tuple(range(1, x.ndim - 1))


# Gradients: every input element lies in one stride-sized block, and in the windows of a few blocks around it


def _gather(window: Window, dims: Sequence[int], pieces: Any, term: Any):
    """For every input element, the sum of ``term(offset, *pieces)`` over the windows that contain it.

    Args:
      pieces: pairs of an array with one element per window and its fill value where there is no window.
      term: takes the offset in the window, one broadcastable array per dim, and the windows' elements.
    """
    (first, _), rank = pieces[0], len(dims)
    batch, *positions, channels = first.shape
    strides = window.strides
    around = [-(-k // s) - 1 for k, s in zip(window.kernel, strides, strict=True)]  # further blocks a window reaches
    blocks = [n + a for n, a in zip(positions, around, strict=True)]
    if any(around):
        config = [(0, 0, 0), *((a, a, 0) for a in around), (0, 0, 0)]
        pieces = [(lax.pad(piece, jnp.asarray(fill, piece.dtype), config), fill) for piece, fill in pieces]
    inside = [2 * i + 2 for i in range(rank)]  # the dims that index an element within its block
    total = None
    for back in itertools.product(*(range(a + 1) for a in around)):
        start = [0, *(a - b for a, b in zip(around, back, strict=True)), 0]
        limit = [batch, *(s + n for s, n in zip(start[1:-1], blocks, strict=True)), channels]
        met = [jnp.expand_dims(lax.slice(piece, start, limit), inside) for piece, _ in pieces]
        offset = [
            lax.broadcasted_iota(jnp.int32, [s if i == at else 1 for i in range(2 * rank + 2)], at) + b * s
            for at, b, s in zip(inside, back, strides, strict=True)
        ]
        part = term(offset, *met)
        total = part if total is None else total + part
    assert total is not None
    folded = [batch, *itertools.chain.from_iterable(zip(blocks, strides, strict=True)), channels]
    whole = jnp.broadcast_to(total, folded).reshape(
        batch, *(n * s for n, s in zip(blocks, strides, strict=True)), channels
    )
    # From blocks to padded space, which may end earlier, and then to the input.
    ends = zip(whole.shape[1:-1], window.pads, dims, strict=True)
    config = [(0, 0, 0), *((-low, n - size + low, 0) for size, (low, _), n in ends), (0, 0, 0)]
    return lax.pad(whole, jnp.zeros((), whole.dtype), config)


# Maximum


def _larger(a, b):
    """Fluid's maximum: b unless a is larger, so a NaN survives only until the next number."""
    return jnp.where(a > b, a, b)


@custom_vjp(1)
def _max_pool(x, window: Window):
    lowest = jnp.asarray(jnp.finfo(x.dtype).min, x.dtype)  # Fluid's initial value; -inf is below it
    if math.prod(window.kernel) <= MANY:
        return reduce(_larger, _views(x, window, -jnp.inf), lowest)
    if _is_global(x, window):
        return jnp.maximum(x.max(_space(x), keepdims=True), lowest)
    sides = [(1, 1), *zip(window.kernel, window.strides, strict=True), (1, 1)]
    sizes, strides = zip(*sides, strict=True)
    return lax.reduce_window(x, lowest, lax.max, sizes, strides, ((0, 0), *window.pads, (0, 0)))


def _max_pool_forward(x, window):
    out = _max_pool(x, window)
    return out, (x, out)


def _max_pool_backward(window, saved, g):
    x, out = saved
    first = _first_equal(x, out, window)
    base = _bases(window)

    def term(offset, first, g):
        return jnp.where(first == sum(o * b for o, b in zip(offset, base, strict=True)), g, jnp.zeros((), g.dtype))

    return (_gather(window, x.shape[1:-1], [(first, -1), (g, 0)], term),)


_max_pool.defvjp(_max_pool_forward, _max_pool_backward)


def _bases(window) -> list[int]:
    """Weights that encode an offset as one integer, with room for offsets up to whole strides."""
    room = [-(-k // s) * s for k, s in zip(window.kernel, window.strides, strict=True)]
    return [math.prod(room[i + 1 :]) for i in range(len(room))]


def _first_equal(x, out, window):
    """The offset of the first element equal to out in each window, encoded with `_bases`, or -1."""
    base = _bases(window)
    if math.prod(window.kernel) > MANY and _is_global(x, window):
        flat = (x == out).reshape(x.shape[0], -1, x.shape[-1])
        place = jnp.where(flat.any(1), jnp.argmax(flat, axis=1), -1).astype(jnp.int32)
        return place.reshape(out.shape)
    places = [sum(o * b for o, b in zip(offset, base, strict=True)) for offset in window.offsets()]
    first = jnp.full(out.shape, -1, jnp.int32)
    for view, place in reversed(list(zip(_views(x, window, -jnp.inf), places, strict=True))):
        first = jnp.where(view == out, jnp.int32(place), first)
    return first


# Mean


@custom_vjp(1)
def _sum_pool(x, window: Window):
    if _is_global(x, window):
        return x.sum(_space(x), keepdims=True)
    if math.prod(window.kernel) <= MANY:
        return sum(_views(x, window, 0))
    sides = [(1, 1), *zip(window.kernel, window.strides, strict=True), (1, 1)]
    sizes, strides = zip(*sides, strict=True)
    return lax.reduce_window(x, jnp.zeros((), x.dtype), lax.add, sizes, strides, ((0, 0), *window.pads, (0, 0)))


def _sum_pool_backward(window, shape, g):
    whole = all(k % s == 0 for k, s in zip(window.kernel, window.strides, strict=True))

    def term(offset, g):
        if whole:
            return g
        inside = [o < k for o, k in zip(offset, window.kernel, strict=True)]
        return jnp.where(reduce(jnp.logical_and, inside), g, jnp.zeros((), g.dtype))

    return (_gather(window, shape[1:-1], [(g, 0)], term),)


_sum_pool.defvjp(lambda x, window: (_sum_pool(x, window), x.shape), _sum_pool_backward)


def _elements(window, dims, exclusive) -> list[np.ndarray]:
    """Per dim, the number of elements of each window, without padding if ``exclusive``."""
    counts = []
    for n, k, s, (low, high) in zip(dims, window.kernel, window.strides, window.pads, strict=True):
        begin = np.arange(0, n + low + high - k + 1, s) - low
        inside = np.minimum(begin + k, n) - np.maximum(begin, 0)
        counts.append(inside if exclusive else np.full_like(inside, k))
    return counts


def _over(x, counts):
    """x divided by the element count of each window, the product of ``counts`` over dims."""
    size = jnp.ones((), x.dtype)
    for dim, count in enumerate(counts, 1):
        size = size * count.astype(x.dtype).reshape([-1 if i == dim else 1 for i in range(x.ndim)])
    return x / size


# Adaptive windows: the i-th of n begins at floor(i * dim / n) and ends before ceil((i + 1) * dim / n)


def _adaptive_places(dims, sizes) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Per dim, the indices of each window's elements, padded with the last one, and the mask of valid ones."""
    places, valid = [], []
    for dim, size in zip(dims, sizes, strict=True):
        begin = np.arange(size) * dim // size
        end = -(-(np.arange(size) + 1) * dim // size)
        place = begin[:, None] + np.arange((end - begin).max())
        places.append(np.minimum(place, end[:, None] - 1))
        valid.append(place < end[:, None])
    return places, valid


def _adaptive_elements(x, sizes, fill):
    """x's windows as [N, *sizes, elements, C], padded with ``fill``, and the flat index of each element."""
    dims, rank = x.shape[1:-1], x.ndim - 2
    places, valid = _adaptive_places(dims, sizes)

    def spread_out(array, i):  # [size_i, element_i] among [*sizes, *elements]
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = array.shape
        return array.reshape(shape)

    flat = reduce(np.add, [spread_out(p, i) * math.prod(dims[i + 1 :]) for i, p in enumerate(places)])
    counts = reduce(np.logical_and, [spread_out(v, i) for i, v in enumerate(valid)]).reshape(*sizes, -1)
    flat = flat.reshape(*sizes, -1)
    windows = x.reshape(x.shape[0], -1, x.shape[-1])[:, flat]
    return jnp.where(counts[..., None], windows, jnp.asarray(fill, x.dtype)), flat


def _adaptive_max(x, sizes):
    """The maximum of each window and its flat index in the image."""
    windows, flat = _adaptive_elements(x, sizes, -jnp.inf)
    chosen = jnp.argmax(windows, axis=-2)
    out = jnp.take_along_axis(windows, chosen[..., None, :], axis=-2).squeeze(-2)
    mask = jnp.take_along_axis(jnp.asarray(flat, jnp.int32)[None, ..., None], chosen[..., None, :], axis=-2).squeeze(-2)
    return out, mask


def _adaptive_mean(x, sizes):
    windows, _ = _adaptive_elements(x, sizes, 0)
    _, valid = _adaptive_places(x.shape[1:-1], sizes)
    return _over(windows.sum(-2), [v.sum(1) for v in valid])


def _adaptive_window(dims, sizes) -> Window | None:
    """The equivalent ordinary window if sizes divide dims, else None."""
    if any(dim % size for dim, size in zip(dims, sizes, strict=True)):
        return None
    step = tuple(dim // size for dim, size in zip(dims, sizes, strict=True))
    return Window(step, step, (1,) * len(dims), ((0, 0),) * len(dims))


# Fluid's ops


def _register_pool(type: str, rank: int, data_format: str, meaning: str, **options: Any) -> Any:
    @op(type, inputs="X", outputs="Out", **options)
    def rule(
        x,
        *,
        pooling_type,
        ksize,
        global_pooling=False,
        strides=(1,) * rank,
        paddings=(0,) * rank,
        exclusive=True,
        adaptive=False,
        ceil_mode=False,
        data_format=data_format,
        padding_algorithm="EXPLICIT",
    ):
        if pooling_type not in ("max", "avg"):
            raise ValueError(f"pooling_type must be max or avg, not {pooling_type}")
        dtype = x.dtype
        x = channels_last(x.astype(jnp.float32) if is_8_bit(x) else x, data_format)
        dims = x.shape[1:-1]
        if global_pooling or adaptive:
            window = _adaptive_window(dims, (1,) * len(dims) if global_pooling else ksize)
        else:
            window = _window(dims, ksize, strides, paddings, padding_algorithm, ceil_mode)
        if window is None:
            out = _adaptive_max(x, ksize)[0] if pooling_type == "max" else _adaptive_mean(x, ksize)
        elif pooling_type == "max":
            out = _max_pool(x, window)
        else:
            out = _over(_sum_pool(x, window), _elements(window, dims, exclusive))
        return as_given(out if out.dtype == dtype else rounded(out, dtype), data_format)

    rule.__doc__ = meaning
    return rule


pool2d = _register_pool(
    "pool2d",
    2,
    "NCHW",
    "The maximum or mean over windows of images; exclusive means do not count padding.",
    row_wise=True,
)
pool3d = _register_pool(
    "pool3d", 3, "NCDHW", "The maximum or mean over windows of volumes; exclusive means do not count padding."
)


def _flat_place(place, window, dims):
    """The flat index in the image of an encoded offset in the window; -1 stays -1."""
    flat, left = jnp.zeros((), jnp.int32), place
    for i, base in enumerate(_bases(window)):
        begin = lax.broadcasted_iota(jnp.int32, place.shape, i + 1) * window.strides[i] - window.pads[i][0]
        flat = flat + (begin + left // base) * math.prod(dims[i + 1 :])
        left = left % base
    return jnp.where(place < 0, -1, flat)


def _register_max_with_index(type: str, rank: int, meaning: str) -> None:
    @op(type, inputs="X", outputs="Out Mask")
    def rule(x, *, ksize, global_pooling=False, adaptive=False, strides=(1,) * rank, paddings=(0,) * rank):
        x = jnp.moveaxis(x, 1, -1)
        dims = x.shape[1:-1]
        if global_pooling or adaptive:
            window = _adaptive_window(dims, (1,) * len(dims) if global_pooling else ksize)
        else:
            window = _window(dims, ksize, strides, paddings, "EXPLICIT", ceil_mode=False)
        if window is None:
            out, mask = _adaptive_max(x, ksize)
        else:
            out = _max_pool(x, window)
            mask = _flat_place(_first_equal(lax.stop_gradient(x), lax.stop_gradient(out), window), window, dims)
        return jnp.moveaxis(out, -1, 1), jnp.moveaxis(mask, -1, 1)

    rule.__doc__ = meaning


_register_max_with_index(
    "max_pool2d_with_index", 2, "The maximum over windows of images, and where in its image it is, counted row by row."
)
_register_max_with_index(
    "max_pool3d_with_index",
    3,
    "The maximum over windows of volumes, and where in its volume it is, counted row by row.",
)
