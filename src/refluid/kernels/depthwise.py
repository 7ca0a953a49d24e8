"""Depthwise convolutions: every channel of an image has a filter of its own.

XLA computes them as products of shifted views, which it fuses into whatever reads the result: a batch_norm that
follows convolves anew for each of its sums. Images are channels-last. Threads share the rows of the result; for the
gradient of filters they share the channels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import MODE, argument, attribute, integers, result
from refluid.kernels.products import ZERO, columns_of_part, fast, fill
from refluid.kernels.sliding import FEW, slide, weigh
from refluid.kernels.tiles import LANES

_WORTH_A_THREAD = 1 << 16  # multiplications
_CORRELATE, _SPREAD, _WEIGH = range(3)
_FLOAT_SIZE = 4

# The geometry has a number for height and one for width: of images, of kernel positions, of the kernel, ...
_DIMS, _POSITIONS, _KERNEL, _STRIDES, _DILATIONS, _PADS = range(0, 12, 2)


@fast
def _reach(geometry, element):
    """The first position, across, at which the kernel elements of a column read the image, and one after the last."""
    left = element * geometry[_DILATIONS + 1] - geometry[_PADS + 1]
    stride, width, wide = geometry[_STRIDES + 1], geometry[_DIMS + 1], geometry[_POSITIONS + 1]
    first = min(max((stride - 1 - left) // stride, 0), wide)
    return first, max(min((width - left + stride - 1) // stride, wide), first)


@fast
def _other_row(mode, geometry, y, element):
    """The row of the image that a row of kernel elements reads at row y of its positions, or the reverse; -1: none."""
    stride, shift = geometry[_STRIDES], element * geometry[_DILATIONS] - geometry[_PADS]
    if mode != _SPREAD:
        row = y * stride + shift
        return row if 0 <= row < geometry[_DIMS] else -1
    row = y - shift
    return row // stride if row % stride == 0 and 0 <= row // stride < geometry[_POSITIONS] else -1


def _row_of(lanes: int) -> Any:
    """A function that applies a row of kernel elements along a row of pixels, for that many channels at once."""

    @fast
    def apply(mode, taps, geometry, element, first, last, image, w, positions, pixel):
        """Applies neighbouring elements at the positions from first to last."""
        if last <= first:
            return
        step, tap = geometry[_STRIDES + 1] * pixel, geometry[_DILATIONS + 1] * pixel
        image += first * step + element * tap - geometry[_PADS + 1] * pixel
        w, positions, count = w + element * pixel, positions + first * pixel, last - first
        if mode == _CORRELATE:
            if taps == 3:
                slide(lanes, 3, image, step, tap, w, pixel, positions, pixel, count)
            else:
                slide(lanes, 1, image, step, tap, w, pixel, positions, pixel, count)
        elif mode == _SPREAD:
            slide(lanes, 1, positions, pixel, 0, w, pixel, image, step, count)
        elif taps == 3:
            weigh(lanes, 3, image, step, tap, positions, pixel, count, w, pixel)
        else:
            weigh(lanes, 1, image, step, tap, positions, pixel, count, w, pixel)

    @fast
    def apply_row(mode, geometry, image, w, positions, pixel):
        """Where three neighbouring elements read the image, they are applied together.

        ``image``, ``w`` and ``positions`` are the addresses of rows: of pixels, of kernel elements, and of what belongs
        to the positions of the kernel. ``pixel`` is the size of one.
        """
        element, kernel = 0, geometry[_KERNEL + 1]
        while element < kernel:
            first, last = _reach(geometry, element)
            if element + 3 > kernel or mode == _SPREAD:
                apply(mode, 1, geometry, element, first, last, image, w, positions, pixel)
                element += 1
                continue
            for i in range(element + 1, element + 3):
                begin, end = _reach(geometry, i)
                first, last = max(first, begin), min(last, end)
            last = max(first, last)
            apply(mode, 3, geometry, element, first, last, image, w, positions, pixel)
            for i in range(element, element + 3):
                begin, end = _reach(geometry, i)
                apply(mode, 1, geometry, i, begin, min(first, end), image, w, positions, pixel)
                apply(mode, 1, geometry, i, max(last, begin), end, image, w, positions, pixel)
            element += 3

    return apply_row


_many_channels, _few_channels, _one_channel = _row_of(LANES), _row_of(FEW), _row_of(1)


@fast
def _apply_row(mode, lanes, geometry, image, w, positions, pixel):
    if lanes == LANES:
        _many_channels(mode, geometry, image, w, positions, pixel)
    elif lanes == FEW:
        _few_channels(mode, geometry, image, w, positions, pixel)
    else:
        _one_channel(mode, geometry, image, w, positions, pixel)


@fast
def _apply_kernel(mode, geometry, image, w, positions, row, y, begin, end):
    """Applies all kernel elements to the channels from begin to end of a row.

    ``row`` counts the rows of the image for `_SPREAD`, of the positions otherwise; y is that row within its image.
    """
    height, width, high, wide = geometry[_DIMS], geometry[_DIMS + 1], geometry[_POSITIONS], geometry[_POSITIONS + 1]
    pixel, kernel_row = image.strides[0], geometry[_KERNEL + 1] * w.strides[0]
    c = begin
    while c < end:
        lanes = LANES if c + LANES <= end else (FEW if c + FEW <= end else 1)
        for i in range(geometry[_KERNEL]):
            other = _other_row(mode, geometry, y, i)
            if other < 0:
                continue
            image_row, position_row = row // high * height + other, row
            if mode == _SPREAD:
                image_row, position_row = row, row // height * high + other
            shift = _FLOAT_SIZE * c
            _apply_row(
                mode,
                lanes,
                geometry,
                image.ctypes.data + image_row * width * pixel + shift,
                w.ctypes.data + i * kernel_row + shift,
                positions.ctypes.data + position_row * wide * pixel + shift,
                pixel,
            )
        c += lanes


@fast
def _slide(mode, geometry, image, w, positions, part, parts):
    """Rows of the positions or, for `_SPREAD`, of the image."""
    out, side = (image, _DIMS) if mode == _SPREAD else (positions, _POSITIONS)
    high, wide, channels = geometry[side], geometry[side + 1], out.shape[1]
    total = out.shape[0] // wide
    for row in range(total * part // parts, total * (part + 1) // parts):
        fill(out[row * wide : (row + 1) * wide].ravel(), ZERO)
        _apply_kernel(mode, geometry, image, w, positions, row, row % high, 0, channels)


@fast
def _weigh(geometry, image, w, positions, part, parts):
    begin, end = columns_of_part(w.shape[1], part, parts)
    for k in range(w.shape[0]):
        fill(w[k, begin:end], ZERO)
    for row in range(positions.shape[0] // geometry[_POSITIONS + 1]):
        _apply_kernel(_WEIGH, geometry, image, w, positions, row, row % geometry[_POSITIONS], begin, end)


def _work(frame, part, parts):
    mode, geometry = attribute(frame, MODE), integers(frame, 0)
    first, second, out = argument(frame, 1), argument(frame, 2), result(frame, 0)
    if mode == _CORRELATE:
        _slide(_CORRELATE, geometry, first, second, out, part, parts)
    elif mode == _SPREAD:
        _slide(_SPREAD, geometry, out, second, first, part, parts)
    else:
        _weigh(geometry, first, out, second, part, parts)


_kernel = Kernel("depthwise", _work)


def _call(mode: int, window: Any, dims: Any, positions: Any, first: Any, second: Any, shape: Any) -> Any:
    lows = [low for low, _ in window.pads]
    geometry = np.array([*dims, *positions, *window.kernel, *window.strides, *window.dilations, *lows], np.int64)
    multiplications = first.shape[0] * math.prod(positions) * math.prod(window.kernel) * first.shape[-1]
    arguments = geometry, first.reshape(-1, first.shape[-1]), second.reshape(-1, second.shape[-1])
    rows = [(math.prod(shape[:-1]), shape[-1])]
    return _kernel(arguments, rows, max(1, multiplications // _WORTH_A_THREAD), mode)[0].reshape(shape)


def correlate(x: Any, w: Any, window: Any) -> Any:
    """The convolution of x [N, H, W, C] with w [height, width, 1, C]; ``window`` is how the kernel slides."""
    positions = window.positions(x.shape[1:-1])
    return _call(_CORRELATE, window, x.shape[1:-1], positions, x, w, (x.shape[0], *positions, x.shape[-1]))


def spread(g: Any, w: Any, window: Any, dims: tuple[int, ...]) -> Any:
    """The transpose of `correlate` in x, for images of size ``dims``."""
    shape = (g.shape[0], *dims, g.shape[-1])
    return _call(_SPREAD, window, dims, g.shape[1:-1], g, w, shape)


def weight_gradient(x: Any, g: Any, window: Any) -> Any:
    """The transpose of `correlate` in w."""
    return _call(_WEIGH, window, x.shape[1:-1], g.shape[1:-1], x, g, (*window.kernel, 1, g.shape[-1]))
