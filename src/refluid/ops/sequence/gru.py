"""GRUs: over packed sequences (gru) and one step (gru_unit).

Rows hold update gate, reset gate and candidate, in that order. Weight stores the matrix of both gates [size, 2 size],
followed by that of the candidate [size, size]; its shape [size, 3 size] does not show this.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from jax.lax import stop_gradient

from refluid.ops.core.registry import op
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

# The activations of gru_unit, by number.
_NUMBERED = ("identity", "sigmoid", "tanh", "relu")


@op(
    "gru",
    inputs="Input H0? Weight Bias?",
    outputs="BatchGate? BatchResetHiddenPrev? BatchHidden? Hidden",
    lod="aware",
    loops=True,
)
def gru(x, h0, weight, bias=None, *, activation="tanh", gate_activation="sigmoid", is_reverse=False, origin_mode=False):
    """h = (1 - u) h + u c, or u h + (1 - u) c in origin mode, with the candidate c = act(x + (r h) @ weight)."""
    x = require_sequences(x, "Input")
    size = weight.shape[0]
    rows = x.data if bias is None else x.data + bias.reshape(-1)
    start = initial_state(h0, x, size)
    gate, act = ACTIVATIONS[gate_activation], ACTIVATIONS[activation]
    usual = (gate_activation, activation) == ("sigmoid", "tanh")
    kernel = find_kernel("gru", x, rows, weight, start) if usual else None
    if kernel is not None:
        hidden = kernel.gru(x, is_reverse, rows, *_matrices(weight), start, origin_mode)
    else:
        cell = partial(_gru_step, gate=gate, act=act, origin_mode=origin_mode)
        inputs = (rows[:, : 2 * size], rows[:, 2 * size :])
        (hidden,) = recur(cell, BatchOrder.of(x, is_reverse), inputs, _matrices(weight), (), (start,))
    values = stop_gradient((rows, before_each_row(x, hidden, start, is_reverse), weight))
    saved = (*_gates(*values, gate, act), stop_gradient(hidden))
    return *in_batch_order(x, is_reverse, *saved), x.with_data(hidden)


def _gru_step(dot, _, state, *, gate, act, origin_mode):
    (hidden,) = state
    update, reset = jnp.split(gate(dot(0, hidden)), 2, axis=1)
    candidate = act(dot(1, reset * hidden))
    return (_mixed(update, hidden, candidate, origin_mode),)


def _mixed(update, hidden, candidate, origin_mode):
    if origin_mode:
        return update * hidden + (1 - update) * candidate
    return (1 - update) * hidden + update * candidate


def _matrices(weight):
    size = weight.shape[0]
    flat = weight.reshape(-1)
    return flat[: 2 * size * size].reshape(size, 2 * size), flat[2 * size * size :].reshape(size, size)


@op("gru_unit", inputs="Input HiddenPrev Weight Bias?", outputs="Gate ResetHiddenPrev Hidden", lod=None, row_wise=True)
def gru_unit(x, hidden, weight, bias=None, *, activation=2, gate_activation=1, origin_mode=False):
    """One step of a gru; Gate holds update gate, reset gate and candidate. Gradients flow through Hidden only."""
    gate, act = ACTIVATIONS[_NUMBERED[gate_activation]], ACTIVATIONS[_NUMBERED[activation]]
    rows = x if bias is None else x + bias.reshape(-1)
    gates, reset_hidden = _gates(rows, hidden, weight, gate, act)
    update, _, candidate = jnp.split(gates, 3, axis=1)
    return stop_gradient(gates), stop_gradient(reset_hidden), _mixed(update, hidden, candidate, origin_mode)


def _gates(rows, hidden, weight, gate, act):
    """Update gate, reset gate and candidate side by side, and the hidden state that was reset for the candidate."""
    size = hidden.shape[1]
    of_gates, of_candidate = _matrices(weight)
    gates = gate(rows[:, : 2 * size] + hidden @ of_gates)
    reset_hidden = gates[:, size:] * hidden
    candidate = act(rows[:, 2 * size :] + reset_hidden @ of_candidate)
    return jnp.concatenate([gates, candidate], axis=1), reset_hidden
