"""LSTMs: over packed sequences (lstm, lstmp), one step (lstm_unit), and stacked over dense sequences (cudnn_lstm).

The rows of lstm and lstmp hold candidate, input gate, forget gate and output gate, in that order; those of lstm_unit
input gate, forget gate, output gate and candidate. Peephole weights follow the four biases in Bias: input, forget,
output. As in real Fluid no gradient flows through the output Cell of lstm and lstmp, only through the hidden state.

differs: state-of-nothing
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import stop_gradient

from refluid.ops.core.registry import op
from refluid.ops.core.shapes import require_as_many_rows
from refluid.ops.core.values import Ragged
from refluid.ops.sequence.packing import require_sequences
from refluid.ops.sequence.recurrence import (
    ACTIVATIONS,
    BatchOrder,
    before_each_row,
    find_kernel,
    in_batch_order,
    initial_state,
    recur,
)

_USUAL_ACTIVATIONS = ("sigmoid", "tanh", "tanh")  # of gates, cell and candidate


@op(
    "lstm",
    inputs="Input H0? C0? Weight Bias",
    outputs="Hidden Cell BatchGate? BatchCellPreAct?",
    lod="aware",
    loops=True,
)
def lstm(
    x,
    h0,
    c0,
    weight,
    bias,
    *,
    use_peepholes=True,
    is_reverse=False,
    gate_activation="sigmoid",
    cell_activation="tanh",
    candidate_activation="tanh",
):
    """h = o * act(c), c = f * c + i * candidate, with gates act(x + h @ weight + bias) and peepholes to c."""
    x = require_sequences(x, "Input")
    size = weight.shape[0]
    rows, peepholes = _with_bias(x.data, bias, size, use_peepholes)
    start = (initial_state(h0, x, size), initial_state(c0, x, size))
    activations = _activations(gate_activation, cell_activation, candidate_activation)
    usual = (gate_activation, cell_activation, candidate_activation) == _USUAL_ACTIVATIONS
    kernel = find_kernel("lstm", x, rows, weight, *start) if usual else None
    if kernel is not None:
        factors = jnp.stack(peepholes) if peepholes else jnp.zeros((0, size), x.dtype)
        hidden, cells = kernel.lstm(x, is_reverse, rows, weight, factors, *start)
    else:
        cell = partial(_lstm_step, **activations)
        hidden, cells = recur(cell, BatchOrder.of(x, is_reverse), (rows,), (weight,), peepholes, start)
    saved = _saved(x, is_reverse, (rows, weight, peepholes), (hidden, cells), start, **activations)
    return x.with_data(hidden), x.with_data(stop_gradient(cells)), *saved[:2]


@op(
    "lstmp",
    inputs="Input H0? C0? Weight ProjWeight Bias",
    outputs="Projection Cell BatchGate? BatchCellPreAct? BatchHidden?",
    lod="aware",
    loops=True,
)
def lstmp(
    x,
    h0,
    c0,
    weight,
    projection,
    bias,
    *,
    use_peepholes=True,
    is_reverse=False,
    cell_clip=0.0,
    proj_clip=0.0,
    gate_activation="sigmoid",
    cell_activation="tanh",
    candidate_activation="tanh",
    proj_activation="tanh",
):
    """An lstm whose recurrent state is r = act(h @ projection) instead of h; cells and r may be clipped."""
    x = require_sequences(x, "Input")
    size, projected = projection.shape
    activations = _activations(gate_activation, cell_activation, candidate_activation)
    cell = partial(
        _lstmp_step,
        **activations,
        # Real Fluid only checks whether there is a proj_activation, and then applies the cell's activation.
        project=ACTIVATIONS["identity" if proj_activation == "identity" else cell_activation],
        cell_clip=cell_clip or 0.0,
        proj_clip=proj_clip or 0.0,
    )
    rows, peepholes = _with_bias(x.data, bias, size, use_peepholes)
    start = (initial_state(h0, x, projected), initial_state(c0, x, size))
    order = BatchOrder.of(x, is_reverse)
    states, cells = recur(cell, order, (rows, None), (weight, projection), peepholes, start)
    saved = _saved(x, is_reverse, (rows, weight, peepholes), (states, cells), start, **activations)
    return x.with_data(states), x.with_data(stop_gradient(cells)), *saved


def _activations(gate, cell, candidate):
    return {"gate": ACTIVATIONS[gate], "act": ACTIVATIONS[cell], "candidate": ACTIVATIONS[candidate]}


def _lstm_step(dot, peepholes, state, *, gate, act, candidate, cell_clip=0.0):
    hidden, cell = state
    rows = dot(0, hidden)
    if not peepholes and (gate, candidate) == (ACTIVATIONS["sigmoid"], ACTIVATIONS["tanh"]):
        rows, gate, candidate = _tanh_then_sigmoids(rows), ACTIVATIONS["identity"], ACTIVATIONS["identity"]
    new, in_gate, forget, out = jnp.split(rows, 4, axis=1)
    if peepholes:
        in_gate, forget = in_gate + peepholes[0] * cell, forget + peepholes[1] * cell
    cell = candidate(new) * gate(in_gate) + cell * gate(forget)
    if cell_clip > 0:
        cell = jnp.clip(cell, -cell_clip, cell_clip)
    if peepholes:
        out = out + peepholes[2] * cell
    return gate(out) * act(cell), cell


def _tanh_then_sigmoids(rows):
    """tanh of the first quarter of columns, sigmoid of the others: sigmoid(x) = (tanh(x / 2) + 1) / 2, in one pass."""
    is_gate = jnp.arange(rows.shape[1]) >= rows.shape[1] // 4
    scale, shift = jnp.where(is_gate, 0.5, 1).astype(rows.dtype), jnp.where(is_gate, 0.5, 0).astype(rows.dtype)
    return jnp.tanh(rows * scale) * scale + shift


def _lstmp_step(dot, peepholes, state, *, project, proj_clip, **options):
    hidden, cell = _lstm_step(dot, peepholes, state, **options)
    projected = project(dot(1, hidden))
    if proj_clip > 0:
        projected = jnp.clip(projected, -proj_clip, proj_clip)
    return projected, cell


def _with_bias(rows, bias, size, use_peepholes):
    """The rows with the biases of the gates added, and the peephole weights."""
    bias = bias.reshape(-1)
    if not use_peepholes:
        return rows + bias, ()
    return rows + bias[: 4 * size], tuple(bias[(4 + i) * size : (5 + i) * size] for i in range(3))


def _saved(x: Ragged, is_reverse: bool, parameters, states, start, *, gate, act, candidate) -> tuple[Ragged, ...]:
    """The gates, act(c) and o * act(c) of every row, in batch order; no gradient flows through them."""
    (rows, weight, peepholes), states, start = stop_gradient((parameters, states, start))
    hidden, cell = (before_each_row(x, *each, is_reverse) for each in zip(states, start, strict=True))
    new, in_gate, forget, out = jnp.split(rows + hidden @ weight, 4, axis=1)
    if peepholes:
        in_gate, forget = in_gate + peepholes[0] * cell, forget + peepholes[1] * cell
        out = out + peepholes[2] * states[1]
    gates = jnp.concatenate([candidate(new), gate(in_gate), gate(forget), gate(out)], axis=1)
    active = act(states[1])
    return in_batch_order(x, is_reverse, gates, active, gate(out) * active)


@op("lstm_unit", inputs="X C_prev", outputs="C H", lod=None, row_wise=True)
def lstm_unit(x, cell, *, forget_bias=0.0):
    """c = sigmoid(f + forget_bias) * c + sigmoid(i) * tanh(candidate), h = sigmoid(o) * tanh(c)."""
    require_as_many_rows(X=x, C_prev=cell)
    in_gate, forget, out, new = jnp.split(x, 4, axis=1)
    cell = jax.nn.sigmoid(forget + forget_bias) * cell + jax.nn.sigmoid(in_gate) * jnp.tanh(new)
    return cell, jax.nn.sigmoid(out) * jnp.tanh(cell)


@op(
    "cudnn_lstm",
    inputs="Input InitH InitC W Mask?",
    outputs="Out last_h last_c",
    differentiable="Input InitH InitC W",
    loops=True,
)
def cudnn_lstm(
    x,
    h0,
    c0,
    weight,
    mask=None,
    *,
    input_size=None,
    hidden_size=100,
    num_layers=1,
    is_bidirec=False,
    dropout_prob=0.0,
    is_test=False,
    seed=0,
):
    """Layers of lstms over [steps, batch, columns], with dropout between them; W is cuDNN's flat array.

    W holds, for each layer and direction, the input matrices of input gate, forget gate, candidate and output gate,
    each [size, columns], and the recurrent ones, each [size, size]; after all of these, for each layer and direction,
    the biases in the same order, those of the inputs first. Real Fluid runs this op on GPUs only. Mask is our addition:
    a number that changes in every step and seeds dropout; without it, ``seed`` does.
    """
    directions = 2 if is_bidirec else 1
    matrices, biases = _cudnn_parameters(weight, x.shape[2], hidden_size, num_layers, directions)
    out, last_h, last_c = x, [], []
    for layer in range(num_layers):
        if layer and dropout_prob and not is_test:
            out = _dropped(out, dropout_prob, mask, seed, layer)
        halves = []
        for direction in range(directions):
            number = layer * directions + direction
            start, parameters = (h0[number], c0[number]), (*matrices[number], biases[number])
            hidden, cell = _dense_lstm(out, start, parameters, is_reverse=bool(direction))
            last = 0 if direction else -1
            halves.append(hidden)
            last_h.append(hidden[last])
            last_c.append(cell[last])
        out = jnp.concatenate(halves, axis=2)
    return out, jnp.stack(last_h), jnp.stack(last_c)


def _dense_lstm(x, start, parameters, *, is_reverse):
    steps, count, columns = x.shape
    of_input, of_state, bias = parameters
    rows = x.reshape(steps * count, columns) @ of_input + bias
    cell = partial(_lstm_step, gate=jax.nn.sigmoid, act=jnp.tanh, candidate=jnp.tanh)
    order = BatchOrder.dense(steps, count, is_reverse)
    hidden, cells = recur(cell, order, (rows,), (of_state,), (), start)
    return hidden.reshape(steps, count, -1), cells.reshape(steps, count, -1)


def _cudnn_parameters(weight, columns, size, num_layers, directions):
    """For each layer and direction the input and the recurrent matrix, and the bias, in the order of our rows."""
    at, matrices, biases = 0, [], []

    def take(*shape):
        nonlocal at
        at += 4 * math.prod(shape)
        in_gate, forget, new, out = weight[at - 4 * math.prod(shape) : at].reshape(4, *shape)
        return jnp.concatenate([new, in_gate, forget, out]).T

    for layer in range(num_layers):
        width = columns if layer == 0 else size * directions
        matrices += [(take(size, width), take(size, size)) for _ in range(directions)]
    biases = [take(size) + take(size) for _ in range(num_layers * directions)]
    return matrices, biases


def _dropped(rows, probability, mask, seed, layer):
    number = jnp.asarray(seed if mask is None else lax.bitcast_convert_type(mask.reshape(()), jnp.int32))
    key = jax.random.fold_in(jax.random.key(number), layer)
    kept = jax.random.bernoulli(key, 1 - probability, rows.shape)
    return jnp.where(kept, rows / (1 - probability), 0)
