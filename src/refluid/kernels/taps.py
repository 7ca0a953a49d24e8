"""Weighted sums of a few rows of a matrix each, as sampling an image at fractional places needs them.

XLA's gather and scatter do the same, one element at a time and on one core. Threads share the sums and, in the backward
pass, the columns: several sums may read the same row.
"""

from __future__ import annotations

from typing import Any

import jax

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import MODE, argument, attribute, integers, result
from refluid.kernels.products import ZERO, add_scaled, add_two_scaled, columns_of_part, dot, fast, fill

_WORTH_A_THREAD = 1 << 16  # multiplications
_GATHER, _SPREAD, _WEIGH = range(3)


@fast
def _gather(places, weights, x, out, part, parts):
    count, taps = weights.shape
    for i in range(count * part // parts, count * (part + 1) // parts):
        row, t = out[i], 0
        fill(row, ZERO)
        while t + 1 < taps:
            place = i * taps + t
            add_two_scaled(row, weights[i, t], x[places[place]], weights[i, t + 1], x[places[place + 1]])
            t += 2
        if t < taps:
            add_scaled(row, weights[i, t], x[places[i * taps + t]])


@fast
def _spread(places, weights, gradient, out, part, parts):
    begin, end = columns_of_part(out.shape[1], part, parts)
    for i in range(out.shape[0]):
        fill(out[i, begin:end], ZERO)
    count, taps = weights.shape
    for i in range(count):
        row = gradient[i, begin:end]
        for t in range(taps):
            if weights[i, t] != 0:
                add_scaled(out[places[i * taps + t], begin:end], weights[i, t], row)


@fast
def _weigh(places, gradient, x, out, part, parts):
    count, taps = out.shape
    for i in range(count * part // parts, count * (part + 1) // parts):
        for t in range(taps):
            out[i, t] = dot(gradient[i], x[places[i * taps + t]])


def _work(frame, part, parts):
    mode, places = attribute(frame, MODE), integers(frame, 0)
    first, second, out = argument(frame, 1), argument(frame, 2), result(frame, 0)
    if mode == _GATHER:
        _gather(places, first, second, out, part, parts)
    elif mode == _SPREAD:
        _spread(places, first, second, out, part, parts)
    else:
        _weigh(places, first, second, out, part, parts)


_kernel = Kernel("taps", _work)


@jax.custom_vjp
def gather(places: Any, weights: Any, x: Any) -> Any:
    """out[i] = sum over t of weights[i, t] * x[places[i, t]].

    Args:
      places: int64 row numbers, flat, all of them within x.
      weights: [sums, rows in each].
      x: [rows, columns].
    """
    shape = (weights.shape[0], x.shape[1])
    return _kernel((places, weights, x), [shape], _parts(weights, x), _GATHER)[0]


def _parts(weights: Any, x: Any) -> int:
    return max(1, weights.size * x.shape[1] // _WORTH_A_THREAD)


def _forward(places, weights, x):
    return gather(places, weights, x), (places, weights, x)


def _backward(saved, gradient):
    places, weights, x = saved
    parts = _parts(weights, x)
    (of_weights,) = _kernel((places, gradient, x), [weights.shape], parts, _WEIGH)
    (of_x,) = _kernel((places, weights, gradient), [x.shape], parts, _SPREAD)
    return None, of_weights, of_x


gather.defvjp(_forward, _backward)
