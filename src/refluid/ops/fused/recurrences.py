"""Recurrent ops together with the product or the embedding before them, and an LSTM that attends to its input.

Outputs that real Fluid's kernels use as memory (XX, BatchedInput, ...) are not written.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.registry import op
from refluid.ops.core.values import plain
from refluid.ops.sequence.gru import gru
from refluid.ops.sequence.lstm import lstm
from refluid.ops.sequence.packing import require_sequences, require_single_level
from refluid.ops.sequence.recurrence import ACTIVATIONS, initial_state

_LSTM_MEMORY = "XX? BatchedInput? BatchedHidden? BatchedCell? ReorderedH0? ReorderedC0?"


@op(
    "fusion_lstm",
    inputs="X WeightX WeightH Bias H0? C0?",
    outputs=f"Hidden Cell {_LSTM_MEMORY} CheckedCell?",
    grad=None,
    lod="aware",
    loops=True,
)
def fusion_lstm(
    x,
    weight_x,
    weight_h,
    bias,
    h0=None,
    c0=None,
    *,
    use_peepholes=True,
    is_reverse=False,
    gate_activation="sigmoid",
    cell_activation="tanh",
    candidate_activation="tanh",
):
    """The lstm of x @ weight_x."""
    x = require_sequences(x, "X")
    hidden, cell, *_ = lstm(
        x.with_data(x.data @ weight_x),
        h0,
        c0,
        weight_h,
        bias,
        use_peepholes=use_peepholes,
        is_reverse=is_reverse,
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
    )
    return hidden, cell, *(None,) * 7


@op(
    "fused_embedding_fc_lstm",
    inputs="Ids Embeddings WeightH Bias H0? C0?",
    outputs=f"Hidden Cell {_LSTM_MEMORY}",
    grad=None,
    lod="aware",
    loops=True,
)
def fused_embedding_fc_lstm(
    ids,
    embeddings,
    weight_h,
    bias,
    h0=None,
    c0=None,
    *,
    use_peepholes=True,
    is_reverse=False,
    gate_activation="sigmoid",
    cell_activation="tanh",
    candidate_activation="tanh",
):
    """The lstm of embeddings[ids]; the rows include the biases of the gates, so only peepholes are read of Bias."""
    ids = require_sequences(ids, "Ids")
    require_in_range(ids.data, embeddings.shape[0], slot="Ids")
    rows = embeddings.at[ids.data.reshape(-1)].get(mode="clip")
    size = weight_h.shape[0]
    hidden, cell, *_ = lstm(
        ids.with_data(rows),
        h0,
        c0,
        weight_h,
        bias.reshape(-1).at[: 4 * size].set(0),
        use_peepholes=use_peepholes,
        is_reverse=is_reverse,
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
    )
    return hidden, cell, *(None,) * 6


@op(
    "fusion_gru",
    inputs="X H0? WeightX WeightH Bias?",
    outputs="Hidden XX? BatchedInput? BatchedOut? ReorderedH0?",
    grad=None,
    lod="aware",
    loops=True,
)
def fusion_gru(
    x,
    h0,
    weight_x,
    weight_h,
    bias=None,
    *,
    activation="tanh",
    gate_activation="sigmoid",
    is_reverse=False,
    origin_mode=False,
):
    """The gru of x @ weight_x. It respects origin_mode (differs: fused-gru-origin)."""
    x = require_sequences(x, "X")
    *_, hidden = gru(
        x.with_data(x.data @ weight_x),
        h0,
        weight_h,
        bias,
        activation=activation,
        gate_activation=gate_activation,
        is_reverse=is_reverse,
        origin_mode=origin_mode,
    )
    return hidden, *(None,) * 4


@op(
    "attention_lstm",
    inputs="X C0 H0? AttentionWeight AttentionBias? AttentionScalar? AttentionScalarBias? LSTMWeight LSTMBias",
    outputs="Hidden Cell AttentionedX? AttentionFCOut? LSTMX? LSTMOUT?",
    grad=None,
    lod="aware",
    loops=True,
)
def attention_lstm(
    x,
    c0,
    h0,
    attention_weight,
    attention_bias,
    attention_scalar,
    attention_scalar_bias,
    lstm_weight,
    lstm_bias,
    *,
    gate_activation="sigmoid",
    cell_activation="tanh",
    candidate_activation="tanh",
):
    """At each step an LSTM reads the mean of its whole sequence, weighted by a softmax of scores of rows and cell.

    Weights have rows for the hidden state first, then for the input, and columns for forget, input and output gate and
    candidate.
    """
    x = require_single_level(x, "X")
    gate, act, candidate = (ACTIVATIONS[name] for name in (gate_activation, cell_activation, candidate_activation))
    width, size = x.shape[1], lstm_weight.shape[1] // 4
    rows, inside = x.to_padded(), jnp.arange(x.longest) < x.lengths[:, None]
    of_rows = rows @ attention_weight[:width, 0] + (0 if attention_bias is None else attention_bias.reshape(()))
    lowest = jnp.finfo(x.dtype).min

    def step(state, _):
        hidden, cell = state
        scores = jax.nn.relu(of_rows + cell @ attention_weight[width:])
        if attention_scalar is not None:
            shift = 0 if attention_scalar_bias is None else attention_scalar_bias.reshape(())
            scores = jax.nn.relu(scores * attention_scalar.reshape(()) + shift)
        shares = jax.nn.softmax(jnp.where(inside, scores, lowest), axis=1)
        seen = jnp.einsum("st,stw->sw", shares, rows)
        gates = hidden @ lstm_weight[:size] + seen @ lstm_weight[size:] + lstm_bias.reshape(-1)
        forget, enter, leave, new = jnp.split(gates, 4, axis=1)
        cell = gate(forget) * cell + gate(enter) * candidate(new)
        hidden = gate(leave) * act(cell)
        return (hidden, cell), (hidden, cell)

    start = initial_state(h0, x, size), initial_state(c0, x, size)
    _, states = lax.scan(step, start, length=x.longest)
    hidden, cell = (x.from_padded(jnp.swapaxes(plain(state), 0, 1)) for state in states)
    return hidden, cell, *(None,) * 4
