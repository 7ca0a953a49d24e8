"""Convolutions and their transposes, in two and three dims.

The mathematics works on channels-last arrays, x ``[N, *space, C]`` and filters ``[*kernel, C / groups, O]``; the rules
turn Fluid's layouts into that and back. Two linear maps make everything: `correlate` (a convolution) and its transpose
`spread` (the gradient of the input, and conv2d_transpose); both share `weight_gradient`.

XLA's CPU backend is good at one of these products, correlate over many channels. Here each product chooses between
XLA's convolution and forms made of dots and slices, by static shape (`choose`); bench/lowerings.py measures them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in


@dataclass(frozen=True)
class Window:
    """How a kernel moves over padded space; one entry per spatial dim.

    ``pads`` are such that the last position of the kernel ends where padded space ends: a tail of the input that the
    stride skips is a negative pad.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    groups: int = 1

    @property
    def reach(self) -> tuple[int, ...]:
        """How much space the dilated kernel covers."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Where each element of the kernel lies, from the kernel's origin, in row-major order."""
        return itertools.product(*(range(0, r, d) for r, d in zip(self.reach, self.dilations, strict=True)))

    def positions(self, dims: Sequence[int]) -> tuple[int, ...]:
        """How often the kernel fits into space of ``dims``, in each dim."""
        sides = zip(dims, self.pads, self.reach, self.strides, strict=True)
        return tuple((dim + low + high - reach) // stride + 1 for dim, (low, high), reach, stride in sides)

    def fitted(self, dims: Sequence[int], positions: Sequence[int]) -> Window:
        """This window with the high pads that give ``positions`` on space of ``dims``."""
        sides = zip(dims, positions, self.pads, self.reach, self.strides, strict=True)
        return replace(self, pads=tuple((low, (n - 1) * s + r - dim - low) for dim, n, (low, _), r, s in sides))


# The three products and their forms


class Forms(NamedTuple):
    """The form of each product: a key of `CORRELATE`, `SPREAD` and `WEIGHT_GRADIENT`."""

    correlate: str
    spread: str
    weight_gradient: str


def choose(window: Window, batch: Any, dims: Sequence[int], channels: int, filters: int, dtype: Any) -> Forms:
    """The forms that measured best on CPU, for x of ``batch`` images of ``dims`` with ``channels``.

    A batch of any size, as in an exported model, is an expression; it is taken to be a large one.

    Milliseconds of one AVX2 core (bench/lowerings.py), for correlate / spread / weight_gradient:

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
        3x3 same 16 x 16   64, each    32      17.9 / 19.1 / 17.0                          0.7 / 0.6 / 1.2 as shifts
        3x3 / 2  16 x 16   64, each    32       4.3 / 69.0 /  4.0                          0.3 / 0.6 / 0.6 as shifts
        3x3 same 16 x 16   32, in 4    32       4.5 /  5.0 /  241                          2.3 / 3.3 / 3.7 as split
        3x3 same 14 x 14   128, in 32  8        5.9 /  6.2 / 1230                                      4.2 as batch
        3x3x3    8x16x16   16 -> 32    4       14.5 / 27.3 / 25.3     6.0 /  4.7 /  5.4
    """
    if not _on_cpu() or dtype not in (jnp.float32, jnp.float64):
        return Forms("lax", "lax", "lax")
    size, groups = math.prod(window.kernel), window.groups
    if groups > 1:
        if groups == channels and size <= 64:
            return Forms("shifts", "shifts", "shifts")
        return Forms("split", "split", "split") if groups <= 8 else Forms("lax", "lax", "batch")
    if size == 1:
        return Forms("dot", "dot", "dot")
    if dtype == jnp.float64 or len(dims) > 2:  # XLA convolves these in plain loops
        return Forms("offsets", "offsets", "offsets")
    positions = math.prod(window.positions(dims))
    copied = size <= 64 and isinstance(batch, int) and batch * positions * size * channels <= 1 << 24
    # XLA has a library for images, but not for those with up to 16 channels on either side.
    correlate_form = "columns" if copied and size > 9 and channels <= 8 and filters <= 16 else "lax"
    # Spread as a convolution does the work of a product for every element of dims, not for every position.
    wasteful = math.prod(dims) > 1.3 * positions and set(window.strides) == {1}
    if channels <= 4:
        weight_form = "columns" if copied else "offsets"
    else:
        weight_form = "lax" if channels < 16 else "offsets"
    return Forms(correlate_form, "offsets" if wasteful else "lax", weight_form)


def _on_cpu() -> bool:
    device: Any = jax.config.jax_default_device
    return (jax.default_backend() if device is None else getattr(device, "platform", device)) == "cpu"


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def correlate(x, w, window: Window):
    """out[n, p, o] = sum over kernel elements k and channels c of x[n, p * stride + k * dilation - pad, c] w[k, c, o].

    p, k, stride, dilation and pad have an entry per spatial dim.
    """
    forms = choose(window, x.shape[0], x.shape[1:-1], x.shape[-1], w.shape[-1], x.dtype)
    return CORRELATE[forms.correlate](x, w, window)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def spread(g, w, window: Window, dims: tuple[int, ...]):
    """The transpose of `correlate` in x, for x with space of ``dims``."""
    forms = choose(window, g.shape[0], dims, w.shape[-2] * window.groups, w.shape[-1], g.dtype)
    return SPREAD[forms.spread](g, w, window, dims)


def weight_gradient(x, g, window: Window):
    """The transpose of `correlate` in w."""
    forms = choose(window, x.shape[0], x.shape[1:-1], x.shape[-1], g.shape[-1], x.dtype)
    return WEIGHT_GRADIENT[forms.weight_gradient](x, g, window)


def _correlate_forward(x, w, window):
    return correlate(x, w, window), (x, w)


def _correlate_backward(window, saved, g):
    x, w = saved
    return spread(g, w, window, x.shape[1:-1]), weight_gradient(x, g, window)


def _spread_forward(g, w, window, dims):
    return spread(g, w, window, dims), (g, w)


def _spread_backward(window, dims, saved, x):
    g, w = saved
    return correlate(x, w, window), weight_gradient(x, g, window)


correlate.defvjp(_correlate_forward, _correlate_backward)
spread.defvjp(_spread_forward, _spread_backward)


# lax: XLA's own convolution


def _dimension_numbers(rank: int) -> lax.ConvDimensionNumbers:
    space = tuple(range(1, rank + 1))
    data, filters = (0, rank + 1, *space), (rank + 1, rank, *range(rank))
    return lax.ConvDimensionNumbers(data, filters, data)


def _correlate_lax(x, w, window):
    return lax.conv_general_dilated(
        x,
        w,
        window.strides,
        window.pads,
        rhs_dilation=window.dilations,
        dimension_numbers=_dimension_numbers(len(window.kernel)),
        feature_group_count=window.groups,
    )


def _pads_of_transpose(window):
    return tuple((r - 1 - low, r - 1 - high) for r, (low, high) in zip(window.reach, window.pads, strict=True))


def _spread_lax(g, w, window, dims):
    flipped = lax.rev(w, range(len(window.kernel)))
    *kernel, channels, filters = w.shape
    grouped = flipped.reshape(*kernel, channels, window.groups, filters // window.groups)
    swapped = jnp.swapaxes(grouped, -1, -3).reshape(*kernel, filters // window.groups, window.groups * channels)
    return lax.conv_general_dilated(
        g,
        swapped,
        (1,) * len(dims),
        _pads_of_transpose(window),
        lhs_dilation=window.strides,
        rhs_dilation=window.dilations,
        dimension_numbers=_dimension_numbers(len(dims)),
        feature_group_count=window.groups,
    )


def _weight_gradient_lax(x, g, window):
    w = jax.ShapeDtypeStruct((*window.kernel, x.shape[-1] // window.groups, g.shape[-1]), x.dtype)
    return jax.linear_transpose(lambda w: _correlate_lax(x, w, window), w)(g)[0]


# offsets: one dot per kernel element, in a loop, so that large kernels do not make large programs


def _padded(x, window):
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((*pad, 0) for pad in window.pads), (0, 0, 0)])


def _unpadded(x, window):
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((-low, -high, 0) for low, high in window.pads), (0, 0, 0)])


def _interleaved(*pairs):
    return tuple(itertools.chain.from_iterable(zip(*pairs, strict=True)))


@dataclass(frozen=True)
class _Blocks:
    """Padded space cut into blocks of one stride, [N, blocks, stride, blocks, stride, ..., C].

    There, what a kernel element meets is a contiguous piece, whatever the stride.
    """

    window: Window
    positions: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        sides = zip(self.positions, self.window.reach, self.window.strides, strict=True)
        return tuple(n + (reach - 1) // stride for n, reach, stride in sides)

    def cut(self, x):
        """x in blocks."""
        x = _padded(x, self.window)
        whole = (n * s for n, s in zip(self.counts, self.window.strides, strict=True))
        missing = [(0, n - dim, 0) for n, dim in zip(whole, x.shape[1:-1], strict=True)]
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *missing, (0, 0, 0)])
        return x.reshape(x.shape[0], *_interleaved(self.counts, self.window.strides), x.shape[-1])

    def zeros(self, batch, channels, dtype):
        return jnp.zeros((batch, *_interleaved(self.counts, self.window.strides), channels), dtype)

    def join(self, blocks):
        """The x that `cut` made ``blocks`` of."""
        sides = zip(self.positions, self.window.strides, self.window.reach, strict=True)
        ends = [(n - 1) * stride + reach for n, stride, reach in sides]
        dims = [n * s for n, s in zip(self.counts, self.window.strides, strict=True)]
        x = blocks.reshape(blocks.shape[0], *dims, blocks.shape[-1])
        return _unpadded(lax.slice(x, [0] * x.ndim, (x.shape[0], *ends, x.shape[-1])), self.window)

    def piece(self, blocks) -> tuple[int, ...]:
        """The shape of what a kernel element meets."""
        return (blocks.shape[0], *_interleaved(self.positions, [1] * len(self.positions)), blocks.shape[-1])

    def places(self):
        """For each kernel element, where its piece begins, dim by dim."""
        pairs = [map(divmod, offset, self.window.strides) for offset in self.window.offsets()]
        return jnp.asarray([[0, *itertools.chain.from_iterable(pair), 0] for pair in pairs], jnp.int32)

    def read(self, blocks, place):
        return lax.dynamic_slice(blocks, tuple(place), self.piece(blocks))

    def add(self, blocks, place, piece):
        begin, shape = tuple(place), self.piece(blocks)
        there = lax.dynamic_slice(blocks, begin, shape)
        return lax.dynamic_update_slice(blocks, there + piece.reshape(shape), begin)


def _kernel_first(w):
    """w as one matrix [C, O] per kernel element."""
    return w.reshape(-1, *w.shape[-2:])


def _rows(x):
    return x.reshape(-1, x.shape[-1])


def _dot(a, b, a_dim, b_dim):
    return lax.dot_general(a, b, (((a_dim,), (b_dim,)), ((), ())))


def _correlate_offsets(x, w, window):
    positions = window.positions(x.shape[1:-1])
    blocks = _Blocks(window, positions)
    cut = blocks.cut(x)

    def add(total, element):
        matrix, place = element
        return total + _dot(_rows(blocks.read(cut, place)), matrix, 1, 0), None

    zeros = jnp.zeros((x.shape[0] * math.prod(positions), w.shape[-1]), x.dtype)
    total, _ = lax.scan(add, zeros, (_kernel_first(w), blocks.places()))
    return total.reshape(x.shape[0], *positions, w.shape[-1])


def _spread_offsets(g, w, window, dims):
    blocks, rows = _Blocks(window, g.shape[1:-1]), _rows(g)

    def add(total, element):
        matrix, place = element
        return blocks.add(total, place, _dot(rows, matrix, 1, 1)), None

    zeros = blocks.zeros(g.shape[0], w.shape[-2], g.dtype)
    total, _ = lax.scan(add, zeros, (_kernel_first(w), blocks.places()))
    return blocks.join(total)


def _weight_gradient_offsets(x, g, window):
    blocks, rows = _Blocks(window, g.shape[1:-1]), _rows(g)
    cut = blocks.cut(x)

    def gradient(_, place):
        return None, _dot(_rows(blocks.read(cut, place)), rows, 0, 0)

    _, matrices = lax.scan(gradient, None, blocks.places())
    return matrices.reshape(*window.kernel, x.shape[-1], g.shape[-1])


# dot: a kernel of one element


def _taken(x, window):
    """The elements of x that a kernel of one element meets."""
    x = _padded(x, window)
    return lax.slice(x, (0,) * x.ndim, x.shape, (1, *window.strides, 1))


def _correlate_dot(x, w, window):
    taken = _taken(x, window)
    return _dot(_rows(taken), _kernel_first(w)[0], 1, 0).reshape(*taken.shape[:-1], w.shape[-1])


def _spread_dot(g, w, window, dims):
    out = _dot(_rows(g), _kernel_first(w)[0], 1, 1).reshape(*g.shape[:-1], w.shape[-2])
    sides = zip(window.pads, window.strides, strict=True)
    config = [(0, 0, 0), *((-low, -high, stride - 1) for (low, high), stride in sides), (0, 0, 0)]
    return lax.pad(out, jnp.zeros((), out.dtype), config)


def _weight_gradient_dot(x, g, window):
    return _dot(_rows(_taken(x, window)), _rows(g), 0, 0).reshape(*window.kernel, x.shape[-1], g.shape[-1])


# columns: one dot for all kernel elements together, over a copy of the input for each


def _correlate_columns(x, w, window):
    positions, x = window.positions(x.shape[1:-1]), _padded(x, window)
    # A gather, because concatenating as many slices of few channels goes element by element.
    by_dim = zip(positions, window.strides, window.reach, window.dilations, x.shape[1:-1], strict=True)
    places = np.zeros((1, 1), int)
    for n, stride, reach, dilation, dim in by_dim:
        place = np.arange(n)[:, None] * stride + np.arange(0, reach, dilation)
        places = places[:, None, :, None] * dim + place[None, :, None, :]
        places = places.reshape(places.shape[0] * n, -1)
    pixels = x.reshape(x.shape[0], -1, x.shape[-1])
    columns = pixels.at[:, places.reshape(-1).astype(np.int32)].get(mode="promise_in_bounds")
    out = _dot(columns.reshape(x.shape[0] * len(places), -1), _rows(w), 1, 0)
    return out.reshape(x.shape[0], *positions, w.shape[-1])


def _view(x, offset, window, positions, lead=1):
    """The elements of padded x that the kernel element at ``offset`` meets; space begins at dim ``lead``."""
    space = slice(lead, lead + len(offset))
    start, limit, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    start[space], step[space] = offset, window.strides
    limit[space] = [o + (n - 1) * s + 1 for o, n, s in zip(offset, positions, window.strides, strict=True)]
    return lax.slice(x, start, limit, step)


def _weight_gradient_columns(x, g, window):
    # Channels first: then every row of the copy is written, and every column of g read, in order.
    channels_first = jnp.moveaxis(_padded(x, window), -1, 0)
    views = [_view(channels_first, offset, window, g.shape[1:-1], lead=2) for offset in window.offsets()]
    columns = jnp.stack(views).reshape(len(views) * x.shape[-1], -1)
    return _dot(columns, _rows(g), 1, 0).reshape(*window.kernel, x.shape[-1], g.shape[-1])


# shifts: depthwise, as many groups as channels; elementwise products of shifted views


def _repeated(x, times):
    """Each channel of x ``times`` times in a row."""
    return x if times == 1 else jnp.repeat(x, times, axis=-1)


def _folded(x, times):
    """The sum over each run of ``times`` channels."""
    return x if times == 1 else x.reshape(*x.shape[:-1], -1, times).sum(-1)


def _correlate_shifts(x, w, window):
    positions, times = window.positions(x.shape[1:-1]), w.shape[-1] // x.shape[-1]
    x = _padded(x, window)
    views = (_repeated(_view(x, offset, window, positions), times) for offset in window.offsets())
    return sum(view * row[0] for view, row in zip(views, _kernel_first(w), strict=True))


def _spread_shifts(g, w, window, dims):
    times = w.shape[-1] // window.groups
    if any(stride > 1 for stride in window.strides):
        blocks = _Blocks(window, g.shape[1:-1])
        total = blocks.zeros(g.shape[0], window.groups, g.dtype)
        for row, place in zip(_kernel_first(w), blocks.places(), strict=True):
            total = blocks.add(total, place, _folded(g * row[0], times))
        return blocks.join(total)
    around = replace(window, pads=_pads_of_transpose(window))
    return _folded(_correlate_shifts(g, lax.rev(w, range(len(dims))), around), times)


def _weight_gradient_shifts(x, g, window):
    positions, times = g.shape[1:-1], g.shape[-1] // x.shape[-1]
    x = _padded(x, window)
    # Summed in two steps: XLA adds up whole blocks with vector instructions, rows of a fused product one by one.
    parts = next(n for n in (8, 7, 6, 5, 4, 3, 2, 1) if x.shape[0] % n == 0)

    def product(offset):
        view = _repeated(_view(x, offset, window, positions), times)
        return (view * g).reshape(parts, -1, g.shape[-1])

    blocks = jnp.stack([sum(product(offset)[i] for i in range(parts)) for offset in window.offsets()])
    return lax.optimization_barrier(blocks).sum(1).reshape(*window.kernel, 1, g.shape[-1])


# split and batch: several groups, one after the other or as one batch of dots


def _split(x, groups):
    return jnp.split(x, groups, axis=-1)


def _correlate_split(x, w, window):
    one, groups = replace(window, groups=1), window.groups
    pairs = zip(_split(x, groups), _split(w, groups), strict=True)
    return jnp.concatenate([correlate(part, matrix, one) for part, matrix in pairs], axis=-1)


def _spread_split(g, w, window, dims):
    one, groups = replace(window, groups=1), window.groups
    pairs = zip(_split(g, groups), _split(w, groups), strict=True)
    return jnp.concatenate([spread(part, matrix, one, dims) for part, matrix in pairs], axis=-1)


def _weight_gradient_split(x, g, window):
    one, groups = replace(window, groups=1), window.groups
    pairs = zip(_split(x, groups), _split(g, groups), strict=True)
    return jnp.concatenate([weight_gradient(part, rows, one) for part, rows in pairs], axis=-1)


def _weight_gradient_batch(x, g, window):
    groups, channels, filters = window.groups, x.shape[-1] // window.groups, g.shape[-1] // window.groups
    blocks = _Blocks(window, g.shape[1:-1])
    cut, rows = blocks.cut(x), jnp.moveaxis(g.reshape(-1, groups, filters), 1, 0)

    def gradient(_, place):
        piece = jnp.moveaxis(blocks.read(cut, place).reshape(-1, groups, channels), 1, 0)
        return None, lax.dot_general(piece, rows, (((1,), (1,)), ((0,), (0,))))

    _, matrices = lax.scan(gradient, None, blocks.places())
    return jnp.moveaxis(matrices, 1, 2).reshape(*window.kernel, channels, groups * filters)


# Jitted, so that programs that run op by op neither trace the loops again nor dispatch every step of a form.
CORRELATE = {
    name: jax.jit(form, static_argnums=2)
    for name, form in {
        "lax": _correlate_lax,
        "dot": _correlate_dot,
        "offsets": _correlate_offsets,
        "columns": _correlate_columns,
        "shifts": _correlate_shifts,
        "split": _correlate_split,
    }.items()
}
SPREAD = {
    name: jax.jit(form, static_argnums=(2, 3))
    for name, form in {
        "lax": _spread_lax,
        "dot": _spread_dot,
        "offsets": _spread_offsets,
        "shifts": _spread_shifts,
        "split": _spread_split,
    }.items()
}
WEIGHT_GRADIENT = {
    name: jax.jit(form, static_argnums=2)
    for name, form in {
        "lax": _weight_gradient_lax,
        "dot": _weight_gradient_dot,
        "offsets": _weight_gradient_offsets,
        "columns": _weight_gradient_columns,
        "shifts": _weight_gradient_shifts,
        "split": _weight_gradient_split,
        "batch": _weight_gradient_batch,
    }.items()
}


# Fluid's layouts and attributes


def channels_last(x, data_format: str):
    """x with its channels in the last dim."""
    return x if data_format.endswith("C") else jnp.moveaxis(x, 1, -1)


def as_given(x, data_format: str):
    """A channels-last x in ``data_format``."""
    return x if data_format.endswith("C") else jnp.moveaxis(x, -1, 1)


def explicit_pads(paddings, padding_algorithm, dims, kernel, strides) -> tuple[tuple[int, int], ...]:
    """The padding before and after each spatial dim."""
    if padding_algorithm == "VALID":
        return ((0, 0),) * len(dims)
    if padding_algorithm == "SAME":
        wanted = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(dims, kernel, strides, strict=True)]
        return tuple((pad // 2, pad - pad // 2) for pad in wanted)
    if len(paddings) == len(dims):
        return tuple((pad, pad) for pad in paddings)
    if len(paddings) != 2 * len(dims):
        raise ValueError(f"paddings must hold {len(dims)} or {2 * len(dims)} numbers, not {list(paddings)}")
    return tuple(zip(paddings[::2], paddings[1::2], strict=True))


def _window(dims, kernel, strides, paddings, padding_algorithm, dilations, groups) -> Window:
    if len(strides) != len(dims) or len(dilations) != len(dims):
        raise ValueError(f"strides {list(strides)} and dilations {list(dilations)} must hold {len(dims)} numbers each")
    if padding_algorithm == "SAME":  # Fluid then forgets the dilations
        dilations = (1,) * len(dims)
    pads = explicit_pads(paddings, padding_algorithm, dims, kernel, strides)
    return Window(tuple(kernel), tuple(strides), tuple(dilations), pads, groups)


def _convolve(x, w, strides, paddings, padding_algorithm, dilations, groups, data_format):
    groups = groups or 1
    x = channels_last(x, data_format)
    if x.ndim != w.ndim:
        raise ValueError(f"Input has {x.ndim} dims and Filter has {w.ndim}")
    if x.shape[-1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ValueError(
            f"Input of {x.shape[-1]} channels and Filter of shape {list(w.shape)} do not go together in {groups} groups"
        )
    dims = x.shape[1:-1]
    window = _window(dims, w.shape[2:], strides, paddings, padding_algorithm, dilations, groups)
    positions = window.positions(dims)
    if min(positions) <= 0:
        raise ValueError(
            f"a kernel that reaches over {list(window.reach)} does not fit into {list(dims)} with {window.pads}"
        )
    w = jnp.moveaxis(w, (0, 1), (-1, -2))
    return as_given(correlate(x, w, window.fitted(dims, positions)), data_format)


def _convolve_transposed(x, w, strides, paddings, padding_algorithm, dilations, groups, output_size, data_format):
    groups = groups or 1
    x = channels_last(x, data_format)
    if x.shape[-1] != w.shape[0] or w.shape[0] % groups:
        raise ValueError(
            f"Input of {x.shape[-1]} channels and Filter of shape {list(w.shape)} do not go together in {groups} groups"
        )
    positions = x.shape[1:-1]
    window = _window(positions, w.shape[2:], strides, paddings, padding_algorithm, dilations, groups)
    sides = zip(positions, window.strides, window.reach, window.pads, strict=True)
    dims = tuple((n - 1) * s + r - low - high for n, s, r, (low, high) in sides)
    if output_size:
        for natural, wanted, stride in zip(dims, output_size, window.strides, strict=True):
            if not natural <= wanted < natural + stride:
                raise ValueError(
                    f"output_size {list(output_size)} must be at least {list(dims)} and below that plus the strides"
                )
        dims = tuple(output_size)
    w = jnp.moveaxis(w, (0, 1), (-1, -2))
    return as_given(spread(x, w, window.fitted(dims, positions), dims), data_format)


def _with_bias(out, bias, data_format):
    return out if bias is None else as_given(channels_last(out, data_format) + bias.reshape(-1), data_format)


@op(
    "depthwise_conv2d",
    inputs="Input Filter Bias? ResidualData?",
    outputs="Output",
    row_wise=sequences_only_in("Input", "ResidualData"),
)
@op(
    "conv2d",
    inputs="Input Filter Bias? ResidualData?",
    outputs="Output",
    row_wise=sequences_only_in("Input", "ResidualData"),
)
def conv2d(
    x,
    w,
    bias=None,
    residual=None,
    *,
    strides=(1, 1),
    paddings=(0, 0),
    padding_algorithm="EXPLICIT",
    dilations=(1, 1),
    groups=1,
    data_format="AnyLayout",
):
    """The correlation of images with filters [O, C / groups, H, W], plus bias and residual where they are connected."""
    out = _convolve(x, w, strides, paddings, padding_algorithm, dilations, groups, data_format)
    out = _with_bias(out, bias, data_format)
    return out if residual is None else out + residual


@op("conv3d", inputs="Input Filter ResidualData?", outputs="Output")
def conv3d(
    x,
    w,
    residual=None,
    *,
    strides=(1, 1, 1),
    paddings=(0, 0, 0),
    padding_algorithm="EXPLICIT",
    dilations=(1, 1, 1),
    groups=1,
    data_format="AnyLayout",
):
    """The correlation of volumes with filters [O, C / groups, D, H, W], plus residual where it is connected."""
    out = _convolve(x, w, strides, paddings, padding_algorithm, dilations, groups, data_format)
    return out if residual is None else out + residual


@op("depthwise_conv2d_transpose", inputs="Input Filter Bias?", outputs="Output")
@op("conv2d_transpose", inputs="Input Filter Bias?", outputs="Output")
def conv2d_transpose(
    x,
    w,
    bias=None,
    *,
    output_size=(),
    strides=(1, 1),
    paddings=(0, 0),
    padding_algorithm="EXPLICIT",
    dilations=(1, 1),
    groups=1,
    data_format="AnyLayout",
):
    """The transpose of conv2d in its input; filters are [C, O / groups, H, W]."""
    out = _convolve_transposed(x, w, strides, paddings, padding_algorithm, dilations, groups, output_size, data_format)
    return _with_bias(out, bias, data_format)


@op("conv3d_transpose", inputs="Input Filter", outputs="Output")
def conv3d_transpose(
    x,
    w,
    *,
    output_size=(),
    strides=(1, 1, 1),
    paddings=(0, 0, 0),
    padding_algorithm="EXPLICIT",
    dilations=(1, 1, 1),
    groups=1,
    data_format="AnyLayout",
):
    """The transpose of conv3d in its input; filters are [C, O / groups, D, H, W]."""
    return _convolve_transposed(x, w, strides, paddings, padding_algorithm, dilations, groups, output_size, data_format)
