"""The recurrence of a GRU over packed sequences, forward and backward.

A row holds update gate, reset gate and candidate; the candidate has its own matrix, which multiplies the hidden state
after the reset. Lanes and parts are those of `refluid.kernels.lstm`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import MODE, argument, attribute, result
from refluid.kernels.lanes import Lanes, narrowed, state_before, walk, weight_gradient, widened
from refluid.kernels.products import ONE, add_product, add_row, copy_row, fast, fill_rows, room, sigmoid, tanh


@fast
def _open_gates(gates, reset_hidden, h, i):
    """Computes the gates of lane ``i`` from their sums, and the hidden state after the reset."""
    size = h.shape[1]
    for j in range(2 * size):
        gates[i, j] = sigmoid(gates[i, j])
    for j in range(size):
        reset_hidden[i, j] = gates[i, size + j] * h[i, j]


@fast
def _step(saved, row, gates, candidate, h, i, origin_mode):
    """The new hidden state of lane ``i``; saves gates and candidate."""
    size = h.shape[1]
    for j in range(size):
        candidate[i, j] = tanh(candidate[i, j])
    for j in range(size):
        old, new = (h[i, j], candidate[i, j]) if origin_mode else (candidate[i, j], h[i, j])
        h[i, j] = gates[i, j] * old + (ONE - gates[i, j]) * new
    for j in range(2 * size):
        saved[row, j] = gates[i, j]
    for j in range(size):
        saved[row, 2 * size + j] = candidate[i, j]


def _forward(frame, part, parts):
    lanes, first, lengths, stride, real = walk(frame, part, parts)
    x, of_gates, of_candidate, h0 = argument(frame, 4), argument(frame, 5), argument(frame, 6), argument(frame, 7)
    origin_mode = attribute(frame, MODE) != 0
    hidden, saved = result(frame, 0), result(frame, 1)
    size = h0.shape[1]
    running = len(lanes)
    h, reset_hidden = room(running, size), room(running, size)
    gates, candidate = room(running, 2 * size), room(running, size)
    for i in range(running):
        copy_row(h, i, h0, lanes[i])
    for time in range(lengths[0]):
        running = narrowed(running, lengths, time)
        for i in range(running):
            row = first[i] + time * stride
            copy_row(gates, i, x, row)
            for j in range(size):
                candidate[i, j] = x[row, 2 * size + j]
        add_product(gates, h, of_gates, running)
        for i in range(running):
            _open_gates(gates, reset_hidden, h, i)
        add_product(candidate, reset_hidden, of_candidate, running)
        for i in range(running):
            row = first[i] + time * stride
            _step(saved, row, gates, candidate, h, i, origin_mode)
            copy_row(hidden, row, h, i)
    if part == 0:  # padding is a copy of some real row
        fill_rows(hidden, real, first[0])
        fill_rows(saved, real, first[0])


@fast
def _step_back(d_candidate, d_gates, dh, i, saved, row, before, place, origin_mode):
    """Computes the gradients of the sums of candidate and update gate from that of lane ``i``'s hidden state.

    The direct gradient of the previous hidden state stays in ``dh``.
    """
    size = dh.shape[1]
    for j in range(size):
        u, c, h = saved[row, j], saved[row, 2 * size + j], before[place, j]
        of_candidate = ONE - u if origin_mode else u
        towards = h - c if origin_mode else c - h
        d_gates[i, j] = dh[i, j] * towards * u * (ONE - u)
        d_candidate[i, j] = dh[i, j] * of_candidate * (ONE - c * c)
        dh[i, j] *= ONE - of_candidate


@fast
def _reset_back(d_gates, dh, d_reset, i, saved, row, before, place):
    """Computes the gradients of the reset gate's sums and of the previous hidden state from ``d_reset``."""
    size = dh.shape[1]
    for j in range(size):
        r = saved[row, size + j]
        d_gates[i, size + j] = d_reset[i, j] * before[place, j] * r * (ONE - r)
        dh[i, j] += d_reset[i, j] * r
    for j in range(size):
        d_reset[i, j] = 0


def _backward(frame, part, parts):
    lanes, first, lengths, stride, real = walk(frame, part, parts)
    of_gates, of_candidate, h0 = argument(frame, 4), argument(frame, 5), argument(frame, 6)  # matrices are transposed
    hidden, saved, d_hidden = argument(frame, 7), argument(frame, 8), argument(frame, 9)
    origin_mode = attribute(frame, MODE) != 0
    dx, d_h0 = result(frame, 0), result(frame, 1)
    size = h0.shape[1]
    total, running = len(lanes), 0
    dh, d_reset = room(total, size), room(total, size)
    d_gates, d_candidate = room(total, 2 * size), room(total, size)
    for time in range(lengths[0] - 1, -1, -1):
        running = widened(running, lengths, time)
        for i in range(running):
            row = first[i] + time * stride
            add_row(dh, i, d_hidden, row)
            before, place = state_before(time, hidden, row, stride, h0, lanes[i])
            _step_back(d_candidate, d_gates, dh, i, saved, row, before, place, origin_mode)
        add_product(d_reset, d_candidate, of_candidate, running)
        for i in range(running):
            row = first[i] + time * stride
            before, place = state_before(time, hidden, row, stride, h0, lanes[i])
            _reset_back(d_gates, dh, d_reset, i, saved, row, before, place)
            for j in range(2 * size):
                dx[row, j] = d_gates[i, j]
            for j in range(size):
                dx[row, 2 * size + j] = d_candidate[i, j]
        add_product(dh, d_gates, of_gates, running)
    for i in range(total):
        copy_row(d_h0, lanes[i], dh, i)
    if part == 0:
        fill_rows(dx, real, -1)


_forward_kernel, _backward_kernel = Kernel("gru", _forward), Kernel("gru_grad", _backward)


def gru(
    sequences: Any, is_reverse: bool, rows: Any, of_gates: Any, of_candidate: Any, h0: Any, origin_mode: bool
) -> Any:
    """Hidden states as packed rows.

    Args:
      sequences: the sequences of the rows (`refluid.ops.core.values.Ragged`).
      rows: the inputs that each step adds to the products of matrices and hidden state.
      h0: the hidden state before the first step, a row per sequence.
      origin_mode: the update gate weights the old state instead of the new one.
    """
    size, count = of_candidate.shape[0], sequences.sequences
    if rows.shape[1] != 3 * size or of_gates.shape != (size, 2 * size) or of_candidate.shape != (size, size):
        raise ValueError(f"Input and Weight must have 3 times as many columns as the {size} rows of Weight")
    if h0.shape != (count, size):
        raise ValueError(f"H0 must be [{count}, {size}]: a row per sequence")
    return _gru(bool(origin_mode), Lanes.of(sequences, is_reverse), rows, of_gates, of_candidate, h0)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gru(origin_mode, lanes, rows, of_gates, of_candidate, h0):
    return _forward_pass(origin_mode, lanes, rows, of_gates, of_candidate, h0)[0]


def _forward_pass(origin_mode, lanes, rows, of_gates, of_candidate, h0):
    arguments = (*lanes.walk, rows, of_gates, of_candidate, h0)
    shapes = [(rows.shape[0], h0.shape[1]), rows.shape]
    hidden, saved = _forward_kernel(arguments, shapes, lanes.parts(rows.size * h0.shape[1]), origin_mode)
    return hidden, (lanes, of_gates, of_candidate, h0, hidden, saved)


def _backward_pass(origin_mode, residuals, gradient):
    lanes, of_gates, of_candidate, h0, hidden, saved = residuals
    size = h0.shape[1]
    arguments = (*lanes.walk, of_gates.T, of_candidate.T, h0, hidden, saved, gradient)
    d_rows, d_h0 = _backward_kernel(arguments, [saved.shape, h0.shape], lanes.parts(saved.size * size), origin_mode)
    before = lanes.before(hidden, h0)
    d_gates = weight_gradient(before, d_rows[:, : 2 * size])
    d_candidate = weight_gradient(saved[:, size : 2 * size] * before, d_rows[:, 2 * size :])
    return None, d_rows, d_gates, d_candidate, d_h0


_gru.defvjp(_forward_pass, _backward_pass)
