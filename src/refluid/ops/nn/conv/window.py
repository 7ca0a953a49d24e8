"""How a kernel slides over space, and the views of an image that its elements read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import lax


@dataclass(frozen=True)
class Window:
    """How a kernel slides over padded space; one entry per spatial dim.

    ``pads`` make the last kernel position end where padded space ends: a tail of the input that the stride skips is a
    negative pad.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    groups: int = 1

    @property
    def reach(self) -> tuple[int, ...]:
        """The extent of the dilated kernel."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """The offset of each kernel element from the kernel's origin, in row-major order."""
        return itertools.product(*(range(0, r, d) for r, d in zip(self.reach, self.dilations, strict=True)))

    def positions(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The number of kernel positions in space of size ``dims``, per dim."""
        sides = zip(dims, self.pads, self.reach, self.strides, strict=True)
        return tuple((dim + low + high - reach) // stride + 1 for dim, (low, high), reach, stride in sides)

    def fitted(self, dims: Sequence[int], positions: Sequence[int]) -> Window:
        """This window with the high pads that give ``positions`` on space of size ``dims``."""
        sides = zip(dims, positions, self.pads, self.reach, self.strides, strict=True)
        return replace(self, pads=tuple((low, (n - 1) * s + r - dim - low) for dim, n, (low, _), r, s in sides))


def channels_last(x, data_format: str):
    """x with its channels in the last dim."""
    return x if data_format.endswith("C") else jnp.moveaxis(x, 1, -1)


def as_given(x, data_format: str):
    """Channels-last x converted to ``data_format``."""
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


def padded(x, window):
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((*pad, 0) for pad in window.pads), (0, 0, 0)])


def unpadded(x, window):
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((-low, -high, 0) for low, high in window.pads), (0, 0, 0)])


def pads_of_transpose(window):
    return tuple((r - 1 - low, r - 1 - high) for r, (low, high) in zip(window.reach, window.pads, strict=True))


def view(x, offset, window, positions, lead=1):
    """The elements of padded x that the kernel element at ``offset`` reads; spatial dims start at ``lead``."""
    space = slice(lead, lead + len(offset))
    start, limit, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    start[space], step[space] = offset, window.strides
    limit[space] = [o + (n - 1) * s + 1 for o, n, s in zip(offset, positions, window.strides, strict=True)]
    return lax.slice(x, start, limit, step)


def kernel_first(w):
    """w as one matrix [C, O] per kernel element."""
    return w.reshape(-1, *w.shape[-2:])


def as_rows(x):
    return x.reshape(-1, x.shape[-1])


def dot(a, b, a_dim, b_dim):
    return lax.dot_general(a, b, (((a_dim,), (b_dim,)), ((), ())))
