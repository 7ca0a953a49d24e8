"""LSTMs: over packed sequences (lstm, lstmp), one step (lstm_unit), and stacked over dense sequences (cudnn_lstm).

The rows of lstm and lstmp hold candidate, input gate, forget gate and output gate, in that order; those of lstm_unit input
gate, forget gate, output gate and candidate. Peephole weights follow the four biases in Bias: input, forget, output.
As in real Fluid no gradient comes in through the output Cell of lstm and lstmp, only through the hidden state.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from refluid.ops.recurrence import ACTIVATIONS, BatchOrder, initial_state, recur, require_sequences
from refluid.ops.registry import op
from refluid.ops.values import Ragged


@op(
    "lstm",
    inputs="Input H0? C0? Weight Bias",
    outputs="Hidden Cell BatchGate? BatchCellPreAct?",
    lod="aware",
)
def lstm(
    x,
    h0=None,
    c0=None,
    weight=None,
    bias=None,
    *,
    use_peepholes=True,
    is_reverse=False,
    gate_activation="sigmoid",
    cell_activation="tanh",
    candidate_activation="tanh",
):
    """h = o * act(c), c = f * c + i * candidate, with gates act(x + h @ weight + bias) and peepholes to c."""
    require_sequences(x, "Input")
    size = weight.shape[0]
    cell = partial(
        _lstm_step,
        gate=ACTIVATIONS[gate_activation],
        act=ACTIVATIONS[cell_activation],
        candidate=ACTIVATIONS[candidate_activation],
    )
    rows, peepholes = _with_bias(x.data, bias, size, use_peepholes)
    start = (initial_state(h0, x, size), initial_state(c0, x, size))
    order = BatchOrder.of(x, is_reverse)
    hidden, cells = recur(cell, order, (rows,), (weight,), peepholes, start)
    return x.with_data(hidden), x.with_data(stop_gradient(cells)), *_scratch(x, 4 * size, size)


@op(
    "lstmp",
    inputs="Input H0? C0? Weight ProjWeight Bias",
    outputs="Projection Cell BatchGate? BatchCellPreAct? BatchHidden?",
    lod="aware",
)
def lstmp(
    x,
    h0=None,
    c0=None,
    weight=None,
    projection=None,
    bias=None,
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
    require_sequences(x, "Input")
    size, projected = projection.shape
    cell = partial(
        _lstmp_step,
        gate=ACTIVATIONS[gate_activation],
        act=ACTIVATIONS[cell_activation],
        candidate=ACTIVATIONS[candidate_activation],
        # Real Fluid asks proj_activation only whether there is one, and then applies that of the cell.
        project=ACTIVATIONS["identity" if proj_activation == "identity" else cell_activation],
        cell_clip=cell_clip or 0.0,
        proj_clip=proj_clip or 0.0,
    )
    rows, peepholes = _with_bias(x.data, bias, size, use_peepholes)
    start = (initial_state(h0, x, projected), initial_state(c0, x, size))
    order = BatchOrder.of(x, is_reverse)
    states, cells = recur(cell, order, (rows, None), (weight, projection), peepholes, start)
    return x.with_data(states), x.with_data(stop_gradient(cells)), *_scratch(x, 4 * size, size, size)


def _lstm_step(dot, peepholes, state, *, gate, act, candidate, cell_clip=0.0):
    hidden, cell = state
    rows = dot(0, hidden)
    new, in_gate, forget, out = jnp.split(rows, 4, axis=1)
    if peepholes:
        in_gate, forget = in_gate + peepholes[0] * cell, forget + peepholes[1] * cell
    cell = candidate(new) * gate(in_gate) + cell * gate(forget)
    if cell_clip > 0:
        cell = jnp.clip(cell, -cell_clip, cell_clip)
    if peepholes:
        out = out + peepholes[2] * cell
    return gate(out) * act(cell), cell


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


def _scratch(x: Ragged, *widths: int):
    """Stand-ins for what real Fluid's kernels save for their gradients; nothing here reads it."""
    return tuple(jnp.zeros((x.shape[0], width), x.dtype) for width in widths)


@op("lstm_unit", inputs="X C_prev", outputs="C H", row_wise=True)
def lstm_unit(x, cell, *, forget_bias=0.0):
    """c = sigmoid(f + forget_bias) * c + sigmoid(i) * tanh(candidate), h = sigmoid(o) * tanh(c)."""
    in_gate, forget, out, new = jnp.split(x, 4, axis=1)
    cell = jax.nn.sigmoid(forget + forget_bias) * cell + jax.nn.sigmoid(in_gate) * jnp.tanh(new)
    return cell, jax.nn.sigmoid(out) * jnp.tanh(cell)
