"""Weighted sums over bins of regions of images.

The weights of a bin are the product of weights of rows and weights of columns, most of them zero: the kernel adds up
along columns first, then along rows, and touches only what counts. XLA has dense products, which take ten times as many
multiplications, and gathers and scatters, which it runs on one core.

Images are matrices with a row per pixel and a column per channel. Threads share the regions, or the channels where
regions overlap in what is written.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import MODE, argument, attribute, integers, result
from refluid.kernels.products import ZERO, add_scaled, add_two_scaled, columns_of_part, dot, fast, fill

_WORTH_A_THREAD = 1 << 16  # elements of all bins
_POOL, _SPREAD, _WEIGH = range(3)


@fast
def _add_rows(out, i, rows, first, stride, weights, begin, end):
    """out[i] += sum of weights[k] * rows[first + k * stride] for k in [begin, end), two at a time."""
    target = out[i]
    k = begin
    while k + 1 < end:
        place = first + k * stride
        add_two_scaled(target, weights[k], rows[place], weights[k + 1], rows[place + stride])
        k += 2
    if k < end:
        add_scaled(target, weights[k], rows[first + k * stride])


@fast
def _span(weights):
    """The first weight that is not zero, and one after the last."""
    begin, end = 0, weights.shape[0]
    while begin < end and weights[begin] == 0:
        begin += 1
    while end > begin and weights[end - 1] == 0:
        end -= 1
    return begin, end


@fast
def _spans(weights, spans):
    """The span of every row of ``weights``; returns where all together begin and end."""
    begin, end = weights.shape[1], 0
    for i in range(weights.shape[0]):
        spans[i, 0], spans[i, 1] = _span(weights[i])
        if spans[i, 0] < spans[i, 1]:
            begin, end = min(begin, spans[i, 0]), max(end, spans[i, 1])
    return begin, max(begin, end)


@fast
def _copy_block(out, to, source, count):
    for i in range(count):
        for c in range(out.shape[1]):
            out[to + i, c] = out[source + i, c]


@fast
def _sum_columns(sums, x, first, across, spans, top, bottom):
    """sums[(y - top) * bins + q] = the weighted sum over the columns of row y that belong to bin q."""
    bins, width = across.shape
    for y in range(top, bottom):
        for q in range(bins):
            place = (y - top) * bins + q
            fill(sums[place], ZERO)
            _add_rows(sums, place, x, first + y * width, 1, across[q], spans[q, 0], spans[q, 1])


@fast
def _numbers(images, down, across):
    """How many regions there are and how many are real, and their rows and columns of bins."""
    count = images.shape[0] - 1
    return count, images[-1], down.shape[0] // count, across.shape[0] // count


@fast
def _pool(images, x, down, across, out, part, parts):
    count, real, high, wide = _numbers(images, down, across)
    height, width, bins = down.shape[1], across.shape[1], high * wide
    sums = np.empty((height * wide, x.shape[1]), np.float32)
    of_rows, of_columns = np.empty((high, 2), np.int64), np.empty((wide, 2), np.int64)
    source = -1
    for r in range(count * part // parts, count * (part + 1) // parts):
        if r >= real and source >= 0:  # padding is a copy of some real region
            _copy_block(out, r * bins, source * bins, bins)
            continue
        source = r
        mine, others = down[r * high : (r + 1) * high], across[r * wide : (r + 1) * wide]
        top, bottom = _spans(mine, of_rows)
        _spans(others, of_columns)
        _sum_columns(sums, x, images[r] * height * width, others, of_columns, top, bottom)
        for p in range(high):
            for q in range(wide):
                place = r * bins + p * wide + q
                fill(out[place], ZERO)
                _add_rows(out, place, sums, q - top * wide, wide, mine[p], of_rows[p, 0], of_rows[p, 1])


@fast
def _spread(images, gradient, down, across, out, part, parts):
    """The gradient of the images from that of the bins."""
    begin, end = columns_of_part(out.shape[1], part, parts)
    for i in range(out.shape[0]):
        fill(out[i, begin:end], ZERO)
    count, real, high, wide = _numbers(images, down, across)
    height, width, bins = down.shape[1], across.shape[1], high * wide
    of_row = np.empty(end - begin, np.float32)
    of_rows, of_columns = np.empty((high, 2), np.int64), np.empty((wide, 2), np.int64)
    for r in range(min(real, count)):
        mine, others = down[r * high : (r + 1) * high], across[r * wide : (r + 1) * wide]
        top, bottom = _spans(mine, of_rows)
        _spans(others, of_columns)
        for y in range(top, bottom):
            for q in range(wide):
                fill(of_row, ZERO)
                for p in range(high):
                    if mine[p, y] != 0:
                        add_scaled(of_row, mine[p, y], gradient[r * bins + p * wide + q, begin:end])
                first = (images[r] * height + y) * width
                for i in range(of_columns[q, 0], of_columns[q, 1]):
                    add_scaled(out[first + i, begin:end], others[q, i], of_row)


@fast
def _weight_gradients(images, x, down, across, gradient, of_down, of_across, part, parts):
    """The gradients of weights that are not zero; of the others it is left out."""
    count, real, high, wide = _numbers(images, down, across)
    height, width, bins = down.shape[1], across.shape[1], high * wide
    sums, of_row = np.empty((height * wide, x.shape[1]), np.float32), np.empty(x.shape[1], np.float32)
    of_rows, of_columns = np.empty((high, 2), np.int64), np.empty((wide, 2), np.int64)
    for r in range(count * part // parts, count * (part + 1) // parts):
        mine, others = down[r * high : (r + 1) * high], across[r * wide : (r + 1) * wide]
        for p in range(high):
            fill(of_down[r * high + p], ZERO)
        for q in range(wide):
            fill(of_across[r * wide + q], ZERO)
        if r >= real:
            continue
        top, bottom = _spans(mine, of_rows)
        _spans(others, of_columns)
        first = images[r] * height * width
        _sum_columns(sums, x, first, others, of_columns, top, bottom)
        for p in range(high):
            for y in range(of_rows[p, 0], of_rows[p, 1]):
                total = ZERO
                for q in range(wide):
                    total += dot(gradient[r * bins + p * wide + q], sums[(y - top) * wide + q])
                of_down[r * high + p, y] = total
        for y in range(top, bottom):
            for q in range(wide):
                fill(of_row, ZERO)
                for p in range(high):
                    if mine[p, y] != 0:
                        add_scaled(of_row, mine[p, y], gradient[r * bins + p * wide + q])
                for i in range(of_columns[q, 0], of_columns[q, 1]):
                    of_across[r * wide + q, i] += dot(x[first + y * width + i], of_row)


def _work(frame, part, parts):
    images, down, across = integers(frame, 0), argument(frame, 2), argument(frame, 3)
    mode = attribute(frame, MODE)
    if mode == _POOL:
        _pool(images, argument(frame, 1), down, across, result(frame, 0), part, parts)
    elif mode == _SPREAD:
        _spread(images, argument(frame, 1), down, across, result(frame, 0), part, parts)
    else:
        given = argument(frame, 1), argument(frame, 4), result(frame, 0), result(frame, 1)
        _weight_gradients(images, given[0], down, across, given[1], given[2], given[3], part, parts)


_kernel = Kernel("regions", _work)


@jax.custom_vjp
def pool(images: Any, x: Any, down: Any, across: Any) -> Any:
    """The weighted sums of all bins, [regions * rows of bins * columns of bins, channels].

    Args:
      images: int64: the image of each region and, at the end, how many regions are real. Others get the bins of one
        that is, and no gradient.
      x: the images, [images * height * width, channels].
      down: the weights of rows, [regions * rows of bins, height].
      across: the weights of columns, [regions * columns of bins, width]. Gradients of weights that are zero are left
        out.
    """
    count = images.shape[0] - 1
    bins = (down.shape[0] // count) * (across.shape[0] // count)
    return _kernel((images, x, down, across), [(count * bins, x.shape[1])], _parts(count * bins, x), _POOL)[0]


def _parts(bins: int, x: Any) -> int:
    return max(1, bins * x.shape[1] // _WORTH_A_THREAD)


def _forward(images, x, down, across):
    return pool(images, x, down, across), (images, x, down, across)


def _backward(saved, gradient):
    images, x, down, across = saved
    parts = _parts(gradient.shape[0], x)
    (of_x,) = _kernel((images, gradient, down, across), [x.shape], parts, _SPREAD)
    weights = _kernel((images, x, down, across, gradient), [down.shape, across.shape], parts, _WEIGH)
    return None, of_x, *weights


pool.defvjp(_forward, _backward)
