"""Static recurrence: a block run once per time step, as a scan."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from refluid.ops.core.infer import described_elsewhere
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in
from refluid.ops.core.values import Ragged, plain


@op(
    "recurrent",
    inputs="inputs* initial_states*? parameters*?",
    outputs="outputs* step_scopes? kept*?",
    infer=described_elsewhere,
    lod="aware",
    row_wise=sequences_only_in("parameters"),
    loops=True,
)
def recurrent(inputs, initial_states, parameters, *, run_block, sub_block, ex_states=(), states=(), reverse=False):
    """Runs the block for every row of ``inputs``; its ``states`` of one step are the ``ex_states`` of the next.

    The block sees the sequences among ``parameters``. Steps, states and outputs are rows: in Fluid they have no LoD.
    ``kept`` are persistable variables that every step updates, such as the averages of a batch_norm. The op of real
    Fluid does not list them.
    """
    kept = run_block.names("kept")
    outer = dict(zip(run_block.names("parameters"), parameters, strict=True))
    step_inputs, step_outputs = run_block.names("inputs"), run_block.names("outputs")

    def rows_of(value):
        if isinstance(value, Ragged):
            run_block.refuse_padding()
        return plain(value)

    def step(carried, now):
        iteration, rows = now
        env = {
            **outer,
            **dict(zip([*ex_states, *kept], carried, strict=True)),
            **dict(zip(step_inputs, rows, strict=True)),
        }
        env = run_block(sub_block, env, iteration)
        after = [
            rows_of(env[name]).astype(before.dtype) for name, before in zip([*states, *kept], carried, strict=True)
        ]
        return after, [rows_of(env[name]) for name in step_outputs]

    iterations = jnp.arange(inputs[0].shape[0], dtype=jnp.int32)
    first = [plain(x) for x in (*initial_states, *(outer[name] for name in kept))]
    last, outputs = lax.scan(step, first, (iterations, [plain(x) for x in inputs]), reverse=reverse)
    return outputs, None, last[len(ex_states) :]


@op("rnn_memory_helper", inputs="X", outputs="Out", row_wise=True)
def rnn_memory_helper(x, *, dtype=5):
    """x, under the name that the recurrence uses."""
    return x
