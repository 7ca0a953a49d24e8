"""The recurrence of an LSTM over packed sequences, forward and backward.

A row holds candidate, input gate, forget gate and output gate. ``lanes`` are the sequences, longest first, so those
still running at a step are the first ones of a part; a part takes every ``parts``-th lane.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid.kernels.calls import Kernel
from refluid.kernels.frame import argument, result
from refluid.kernels.lanes import Lanes, narrowed, state_before, walk, weight_gradient, widened
from refluid.kernels.products import ONE, add_product, add_row, copy_row, fast, fill_rows, room, sigmoid, tanh


@fast
def _step(z, h, c, i, peepholes):
    """Turns the sums in ``z`` into gates in place, and computes the new state, for lane ``i``."""
    size = c.shape[1]
    has_peepholes = peepholes.shape[0] > 0
    if has_peepholes:
        for j in range(size):
            z[i, size + j] += peepholes[0, j] * c[i, j]
        for j in range(size):
            z[i, 2 * size + j] += peepholes[1, j] * c[i, j]
    for j in range(size):
        z[i, j] = tanh(z[i, j])
    for j in range(2 * size):
        z[i, size + j] = sigmoid(z[i, size + j])
    for j in range(size):
        c[i, j] = z[i, j] * z[i, size + j] + c[i, j] * z[i, 2 * size + j]
    if has_peepholes:
        for j in range(size):
            z[i, 3 * size + j] += peepholes[2, j] * c[i, j]
    for j in range(size):
        z[i, 3 * size + j] = sigmoid(z[i, 3 * size + j])
    for j in range(size):
        h[i, j] = tanh(c[i, j]) * z[i, 3 * size + j]


def _forward(frame, part, parts):
    lanes, first, lengths, stride, real = walk(frame, part, parts)
    x, weight, peepholes = argument(frame, 4), argument(frame, 5), argument(frame, 6)
    h0, c0 = argument(frame, 7), argument(frame, 8)
    hidden, cell, gates = result(frame, 0), result(frame, 1), result(frame, 2)
    size = weight.shape[0]
    running = len(lanes)
    h, c = room(running, size), room(running, size)
    z = room(running, 4 * size)
    for i in range(running):
        copy_row(h, i, h0, lanes[i])
        copy_row(c, i, c0, lanes[i])
    for time in range(lengths[0]):
        running = narrowed(running, lengths, time)
        for i in range(running):
            copy_row(z, i, x, first[i] + time * stride)
        add_product(z, h, weight, running)
        for i in range(running):
            row = first[i] + time * stride
            _step(z, h, c, i, peepholes)
            copy_row(gates, row, z, i)
            copy_row(cell, row, c, i)
            copy_row(hidden, row, h, i)
    if part == 0:  # padding is a copy of some real row
        fill_rows(cell, real, first[0])
        fill_rows(hidden, real, first[0])


@fast
def _step_back(dz, dh, dc, i, gates, cell, row, before, place, peepholes):
    """Computes the gradients of the sums and of the previous cell from those of the state after lane ``i``'s row."""
    size = dc.shape[1]
    for j in range(size):
        o, t = gates[row, 3 * size + j], tanh(cell[row, j])
        dz[i, 3 * size + j] = dh[i, j] * t * o * (ONE - o)
        dc[i, j] += dh[i, j] * o * (ONE - t * t)
    has_peepholes = peepholes.shape[0] > 0
    if has_peepholes:
        for j in range(size):
            dc[i, j] += dz[i, 3 * size + j] * peepholes[2, j]
    for j in range(size):
        a, g = gates[row, j], gates[row, size + j]
        dz[i, j] = dc[i, j] * g * (ONE - a * a)
    for j in range(size):
        a, g = gates[row, j], gates[row, size + j]
        dz[i, size + j] = dc[i, j] * a * g * (ONE - g)
    for j in range(size):
        f = gates[row, 2 * size + j]
        dz[i, 2 * size + j] = dc[i, j] * before[place, j] * f * (ONE - f)
    for j in range(size):
        dc[i, j] *= gates[row, 2 * size + j]
    if has_peepholes:
        for j in range(size):
            dc[i, j] += dz[i, size + j] * peepholes[0, j] + dz[i, 2 * size + j] * peepholes[1, j]


def _backward(frame, part, parts):
    lanes, first, lengths, stride, real = walk(frame, part, parts)
    transposed, peepholes, c0 = argument(frame, 4), argument(frame, 5), argument(frame, 6)
    cell, gates, d_hidden = argument(frame, 7), argument(frame, 8), argument(frame, 9)
    dx, d_h0, d_c0 = result(frame, 0), result(frame, 1), result(frame, 2)
    size = transposed.shape[1]
    total, running = len(lanes), 0
    dh, dc = room(total, size), room(total, size)
    dz = room(total, 4 * size)
    for time in range(lengths[0] - 1, -1, -1):
        running = widened(running, lengths, time)
        for i in range(running):
            row = first[i] + time * stride
            add_row(dh, i, d_hidden, row)
            before, place = state_before(time, cell, row, stride, c0, lanes[i])
            _step_back(dz, dh, dc, i, gates, cell, row, before, place, peepholes)
            copy_row(dx, row, dz, i)
            for j in range(size):
                dh[i, j] = 0
        add_product(dh, dz, transposed, running)
    for i in range(total):
        copy_row(d_h0, lanes[i], dh, i)
        copy_row(d_c0, lanes[i], dc, i)
    if part == 0:
        fill_rows(dx, real, -1)


_forward_kernel, _backward_kernel = Kernel("lstm", _forward), Kernel("lstm_grad", _backward)


def lstm(sequences: Any, is_reverse: bool, rows: Any, weight: Any, peepholes: Any, h0: Any, c0: Any) -> tuple[Any, Any]:
    """Hidden states and cells as packed rows; no gradient flows through the cells.

    Args:
      sequences: the sequences of the rows (`refluid.ops.core.values.Ragged`).
      rows: the inputs that each step adds to the product of weight and hidden state.
      peepholes: the factors of the cell in input, forget and output gate, or no rows.
      h0, c0: the state before the first step, a row per sequence.
    """
    size, count = weight.shape[0], sequences.sequences
    if weight.shape != (size, 4 * size) or rows.shape[1] != 4 * size or peepholes.shape not in ((0, size), (3, size)):
        raise ValueError(f"Input and Weight must have 4 times as many columns as the {size} rows of Weight")
    if h0.shape != (count, size) or c0.shape != (count, size):
        raise ValueError(f"H0 and C0 must be [{count}, {size}]: a row per sequence")
    return _lstm(Lanes.of(sequences, is_reverse), rows, weight, peepholes, h0, c0)


@jax.custom_vjp
def _lstm(lanes, rows, weight, peepholes, h0, c0):
    return _forward_pass(lanes, rows, weight, peepholes, h0, c0)[0]


def _forward_pass(lanes, rows, weight, peepholes, h0, c0):
    size = weight.shape[0]
    state = (rows.shape[0], size)
    arguments = (*lanes.walk, rows, weight, peepholes, h0, c0)
    hidden, cell, gates = _forward_kernel(arguments, [state, state, rows.shape], lanes.parts(rows.size * size))
    return (hidden, cell), (lanes, weight, peepholes, h0, c0, hidden, cell, gates)


def _backward_pass(saved, gradients):
    lanes, weight, peepholes, h0, c0, hidden, cell, gates = saved
    arguments = (*lanes.walk, weight.T, peepholes, c0, cell, gates, gradients[0])
    shapes = [gates.shape, h0.shape, c0.shape]
    d_rows, d_h0, d_c0 = _backward_kernel(arguments, shapes, lanes.parts(gates.size * weight.shape[0]))
    d_weight = weight_gradient(lanes.before(hidden, h0), d_rows)
    d_peepholes = _of_peepholes(d_rows, cell, lanes.before(cell, c0)) if peepholes.shape[0] else peepholes
    return None, d_rows, d_weight, d_peepholes, d_h0, d_c0


def _of_peepholes(d_rows, cell, before):
    _, of_input, of_forget, of_output = jnp.split(d_rows, 4, axis=1)
    return jnp.stack([(of_input * before).sum(0), (of_forget * before).sum(0), (of_output * cell).sum(0)])


_lstm.defvjp(_forward_pass, _backward_pass)
