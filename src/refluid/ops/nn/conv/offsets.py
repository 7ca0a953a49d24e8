"""Products of a convolution as one dot per kernel element, in a loop, to keep the programs of large kernels small."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import jax.numpy as jnp
from jax import lax

from refluid.ops.nn.conv.window import Window, as_rows, dot, kernel_first, padded, unpadded


def interleaved(*pairs):
    return tuple(itertools.chain.from_iterable(zip(*pairs, strict=True)))


@dataclass(frozen=True)
class Blocks:
    """Padded space cut into stride-sized blocks, [N, blocks, stride, blocks, stride, ..., C].

    In this layout a kernel element reads a contiguous piece, whatever the stride.
    """

    window: Window
    positions: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        sides = zip(self.positions, self.window.reach, self.window.strides, strict=True)
        return tuple(n + (reach - 1) // stride for n, reach, stride in sides)

    def cut(self, x):
        """x cut into blocks."""
        x = padded(x, self.window)
        whole = (n * s for n, s in zip(self.counts, self.window.strides, strict=True))
        missing = [(0, n - dim, 0) for n, dim in zip(whole, x.shape[1:-1], strict=True)]
        x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *missing, (0, 0, 0)])
        return x.reshape(x.shape[0], *interleaved(self.counts, self.window.strides), x.shape[-1])

    def zeros(self, batch, channels, dtype):
        return jnp.zeros((batch, *interleaved(self.counts, self.window.strides), channels), dtype)

    def join(self, blocks):
        """The inverse of `cut`."""
        sides = zip(self.positions, self.window.strides, self.window.reach, strict=True)
        ends = [(n - 1) * stride + reach for n, stride, reach in sides]
        dims = [n * s for n, s in zip(self.counts, self.window.strides, strict=True)]
        x = blocks.reshape(blocks.shape[0], *dims, blocks.shape[-1])
        return unpadded(lax.slice(x, [0] * x.ndim, (x.shape[0], *ends, x.shape[-1])), self.window)

    def piece(self, blocks) -> tuple[int, ...]:
        """The shape of the piece that a kernel element reads."""
        return (blocks.shape[0], *interleaved(self.positions, [1] * len(self.positions)), blocks.shape[-1])

    def places(self):
        """The start of each kernel element's piece, per dim."""
        pairs = [map(divmod, offset, self.window.strides) for offset in self.window.offsets()]
        return jnp.asarray([[0, *itertools.chain.from_iterable(pair), 0] for pair in pairs], jnp.int32)

    def read(self, blocks, place):
        return lax.dynamic_slice(blocks, tuple(place), self.piece(blocks))

    def add(self, blocks, place, piece):
        begin, shape = tuple(place), self.piece(blocks)
        there = lax.dynamic_slice(blocks, begin, shape)
        return lax.dynamic_update_slice(blocks, there + piece.reshape(shape), begin)


def correlate_offsets(x, w, window):
    positions = window.positions(x.shape[1:-1])
    blocks = Blocks(window, positions)
    cut = blocks.cut(x)

    def add(total, element):
        matrix, place = element
        return total + dot(as_rows(blocks.read(cut, place)), matrix, 1, 0), None

    zeros = jnp.zeros((x.shape[0] * math.prod(positions), w.shape[-1]), x.dtype)
    total, _ = lax.scan(add, zeros, (kernel_first(w), blocks.places()))
    return total.reshape(x.shape[0], *positions, w.shape[-1])


def spread_offsets(g, w, window, dims):
    blocks, rows = Blocks(window, g.shape[1:-1]), as_rows(g)

    def add(total, element):
        matrix, place = element
        return blocks.add(total, place, dot(rows, matrix, 1, 1)), None

    zeros = blocks.zeros(g.shape[0], w.shape[-2], g.dtype)
    total, _ = lax.scan(add, zeros, (kernel_first(w), blocks.places()))
    return blocks.join(total)


def weight_gradient_offsets(x, g, window):
    blocks, rows = Blocks(window, g.shape[1:-1]), as_rows(g)
    cut = blocks.cut(x)

    def gradient(_, place):
        return None, dot(as_rows(blocks.read(cut, place)), rows, 0, 0)

    _, matrices = lax.scan(gradient, None, blocks.places())
    return matrices.reshape(*window.kernel, x.shape[-1], g.shape[-1])


def weight_gradient_batch(x, g, window):
    groups, channels, filters = window.groups, x.shape[-1] // window.groups, g.shape[-1] // window.groups
    blocks = Blocks(window, g.shape[1:-1])
    cut, rows = blocks.cut(x), jnp.moveaxis(g.reshape(-1, groups, filters), 1, 0)

    def gradient(_, place):
        piece = jnp.moveaxis(blocks.read(cut, place).reshape(-1, groups, channels), 1, 0)
        return None, lax.dot_general(piece, rows, (((1,), (1,)), ((0,), (0,))))

    _, matrices = lax.scan(gradient, None, blocks.places())
    return jnp.moveaxis(matrices, 1, 2).reshape(*window.kernel, channels, groups * filters)
