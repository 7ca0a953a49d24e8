"""Recurrences over packed sequences, forward and backward, as loops that do no work on padding.

Rows are taken in *batch order*, Fluid's own: by time step and, within a step, longest sequence first. So the sequences
still running at a step are the first ones, and the rows of a step are contiguous. A compiled loop needs fixed sizes, so
the loop is split into a few stages of decreasing width, each running for as many steps as the lengths of the batch
need. A stage that is wider than necessary computes rows that are never read.

A cell is written once, as ``step(dot, shared, state) -> state``, with every matrix product done by ``dot(i, rows)``,
which returns ``inputs[i] + rows @ weights[i]``. The backward loop differentiates that function, but reuses the saved
products, and leaves the gradients of inputs and weights to one gather and one large product after the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid import kernels
from refluid.ops.core.gradients import custom_vjp
from refluid.ops.core.values import Ragged, last_at_most, plain
from refluid.ops.sequence.loop_buffers import known_product, slices, weight_gradient, written

Rows = tuple[Any, ...]
Dot = Callable[[int, Any], Any]
Step = Callable[[Dot, Any, Rows], Rows]

# The activations that the attributes of recurrent ops may name.
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "relu": lambda x: jnp.maximum(x, 0),
}


def find_kernel(name: str, sequences: Ragged, *values: Any) -> Any:
    """The module of a kernel that can run the recurrence, or None; kernels need float32 and at least one sequence."""
    if sequences.sequences == 0 or any(value.dtype != jnp.float32 for value in (sequences, *values)):
        return None
    return kernels.find(name)


def initial_state(given: Any, sequences: Ragged, size: int) -> Any:
    """``given``, or zeros: a row for each sequence, padding included."""
    count = sequences.sequences
    if given is None:
        return jnp.zeros((count, size), sequences.dtype)
    given = plain(given)
    return jnp.pad(given, ((0, max(count - given.shape[0], 0)), (0, 0)))[:count]


def before_each_row(sequences: Ragged, states: Any, initial: Any, is_reverse: bool) -> Any:
    """For each row the state that its step began with; ``initial`` where its sequence does."""
    owners = jnp.minimum(sequences.owners(), max(sequences.sequences - 1, 0))
    begins = sequences.positions() == (sequences.lengths[owners] - 1 if is_reverse else 0)
    return jnp.where(begins[:, None], initial[owners], jnp.roll(states, -1 if is_reverse else 1, axis=0))


def in_batch_order(sequences: Ragged, is_reverse: bool, *packed: Any) -> tuple[Ragged, ...]:
    """Packed rows in batch order, as real Fluid's kernels save them for their gradients; here nothing reads them."""
    places = BatchOrder.of(sequences, is_reverse).packed[: sequences.shape[0]]
    return tuple(sequences.as_rows(rows[places]) for rows in packed)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["starts", "ends", "packed", "batch", "reverse", "real", "lanes", "ranks"],
    meta_fields=["widths"],
)
@dataclass(frozen=True)
class BatchOrder:
    """Where the rows of packed sequences are in batch order.

    starts: the first row of each step, and at the end the number of rows. ends: the step at which each stage ends.
    packed: for each row in batch order, its place among the packed rows (with room for one more step at the end).
    batch, reverse: for each packed row, its place in batch order, and in batch order with the last step first.
    real: False for packed rows that are padding. lanes: the sequences, longest first; ranks: the inverse.
    widths: how many sequences each stage takes, decreasing.
    """

    starts: Any
    ends: Any
    packed: Any
    batch: Any
    reverse: Any
    real: Any
    lanes: Any
    ranks: Any
    widths: tuple[int, ...]

    @classmethod
    def of(cls, sequences: Ragged, is_reverse: bool = False) -> BatchOrder:
        """The batch order of ``sequences``; ``is_reverse`` runs each one from its end to its beginning."""
        lengths, offsets, count = sequences.lengths, sequences.offsets[-1], sequences.sequences
        rows, integer = sequences.shape[0], offsets.dtype
        lanes = jnp.argsort(-lengths, stable=True)
        ranks = jnp.argsort(lanes)
        running = count - 1 - last_at_most(lengths[lanes[::-1]], jnp.arange(sequences.longest))
        starts = jnp.concatenate([jnp.zeros((1,), integer), jnp.cumsum(running.astype(integer), dtype=integer)])

        places = jnp.arange(rows + count, dtype=integer)
        step = jnp.clip(last_at_most(starts, places), 0, max(sequences.longest - 1, 0))
        sequence = lanes[jnp.clip(places - starts[step], 0, max(count - 1, 0))]
        packed = offsets[sequence] + (lengths[sequence] - 1 - step if is_reverse else step)

        real = sequences.real()
        owner = jnp.minimum(sequences.owners(), max(count - 1, 0))
        position = sequences.positions()
        step = jnp.clip(lengths[owner] - 1 - position if is_reverse else position, 0, max(sequences.longest - 1, 0))
        widths = _stage_widths(count)
        return cls(
            starts=starts,
            ends=lengths[lanes][jnp.asarray((*widths[1:], 0))],
            packed=jnp.clip(packed, 0, max(rows - 1, 0)).astype(integer),
            batch=jnp.where(real, starts[step] + ranks[owner], 0).astype(integer),
            reverse=jnp.where(real, starts[-1] - starts[step + 1] + ranks[owner], 0).astype(integer),
            real=real,
            lanes=lanes,
            ranks=ranks,
            widths=widths,
        )

    @classmethod
    def dense(cls, steps: int, count: int, is_reverse: bool = False) -> BatchOrder:
        """The order of rows stored step by step, for ``count`` sequences of the same length."""
        places = jnp.arange(steps * count, dtype=jnp.int32)
        backwards = places.reshape(steps, count)[::-1].reshape(-1)
        ahead = backwards if is_reverse else places
        lanes = jnp.arange(count, dtype=jnp.int32)
        return cls(
            starts=jnp.arange(steps + 1, dtype=jnp.int32) * count,
            ends=jnp.full((1,), steps, jnp.int32),
            packed=jnp.concatenate([ahead, lanes]),
            batch=ahead,
            reverse=places if is_reverse else backwards,
            real=jnp.ones(places.shape, bool),
            lanes=lanes,
            ranks=lanes,
            widths=(count,),
        )


def _stage_widths(count: int) -> tuple[int, ...]:
    """Decreasing multiples of 8, the first one ``count`` itself; each stage costs about a second of compilation."""
    return (count, *(width for width in (-(-count * part // 32) * 8 for part in (3, 2, 1)) if 8 <= width < count))


@custom_vjp(0)
def recur(step: Step, order: BatchOrder, inputs: Rows, weights: Rows, shared: Any, initial: Rows) -> Rows:
    """The state after every row, as packed rows.

    Args:
      step: the cell; see the module's docstring.
      inputs: for each product, packed rows to add to it, or None.
      weights: for each product, its matrix.
      shared: other arrays that the cell uses.
      initial: the state before the first step, a row per sequence.
    """
    states, _ = _run(step, order, inputs, weights, shared, initial, save=False)
    return tuple(_packed_states(order, state, before) for state, before in zip(states, initial, strict=True))


def _forward(step, order, inputs, weights, shared, initial):
    states, products = _run(step, order, inputs, weights, shared, initial, save=True)
    results = tuple(_packed_states(order, state, before) for state, before in zip(states, initial, strict=True))
    return results, (order, weights, shared, states, products, tuple(x is not None for x in inputs))


def _packed_states(order: BatchOrder, state: Any, initial: Any) -> Any:
    return _take(state, order.batch + initial.shape[0])


def _run(step, order, inputs, weights, shared, initial, *, save):
    """The states in batch order, preceded by those before the first step; with ``save``, also the products."""
    inputs = tuple(None if x is None else _take(x, order.packed) for x in inputs)
    room = order.packed.shape[0]
    lanes = initial[0].shape[0]
    initial = tuple(x[order.lanes] for x in initial)
    states = tuple(jnp.concatenate([x, jnp.zeros((room, *x.shape[1:]), x.dtype)]) for x in initial)
    # Separate from the input buffers: a loop that both reads and writes a buffer copies it in every iteration.
    products = tuple(jnp.zeros((room, w.shape[1]), w.dtype) for w in weights) if save else ()
    time = jnp.zeros((), order.starts.dtype)
    state = initial
    for stage, width in enumerate(order.widths):

        def body(carry, width=width):
            time, state, states, products = carry
            start = order.starts[time]
            running = (jnp.arange(width) < order.starts[time + 1] - start)[:, None]
            made = {}

            def dot(i, rows):
                made[i] = rows @ weights[i]
                if inputs[i] is not None:
                    made[i] += lax.dynamic_slice_in_dim(inputs[i], start, width)
                return made[i]

            state = step(dot, shared, state)
            state = tuple(jnp.where(running, x, 0) for x in state)
            states = tuple(written(states, state, start + lanes))
            products = tuple(written(products, [made[i] for i in range(len(products))], start))
            return time + 1, state, states, products

        state = tuple(x[:width] for x in state)
        time, state, states, products = lax.while_loop(
            lambda carry, stage=stage: carry[0] < order.ends[stage], body, (time, state, states, products)
        )
    return states, products


def _backward(step, residuals, gradients):
    order, weights, shared, states, products, has_input = residuals
    room, integer = order.packed.shape[0], order.starts.dtype
    lanes = states[0].shape[0] - room
    incoming = tuple(_take(g, order.packed) for g in gradients)
    d_products = tuple(jnp.zeros_like(z) for z in products)
    factors = tuple(jnp.zeros((room, w.shape[0]), w.dtype) for w in weights)
    d_shared = jax.tree.map(jnp.zeros_like, shared)
    d_state = tuple(jnp.zeros((0, x.shape[1]), x.dtype) for x in states)
    transposed = tuple(w.T for w in weights)
    for stage in reversed(range(len(order.widths))):
        width = order.widths[stage]

        def body(carry, width=width):
            time, d_state, d_products, factors, d_shared = carry
            start, after = order.starts[time], order.starts[time + 1]
            before = jnp.where(time == 0, 0, lanes + order.starts[jnp.maximum(time - 1, 0)])
            running = (jnp.arange(width) < after - start)[:, None]
            saved = tuple(slices(products, start, width))
            state = tuple(slices(states, before, width))
            used = {}

            def replay(saved, shared, state):
                def dot(i, rows):
                    used[i] = lax.stop_gradient(rows)
                    return known_product(saved[i], rows, transposed[i])

                return step(dot, shared, state)

            _, pullback = jax.vjp(replay, saved, shared, state)
            total = tuple(
                jnp.where(running, d + lax.dynamic_slice_in_dim(g, start, width), 0)
                for d, g in zip(d_state, incoming, strict=True)
            )
            d_saved, d_shared_now, d_state = pullback(total)
            place = order.starts[-1] - after
            d_products = tuple(written(d_products, d_saved, place))
            factors = tuple(written(factors, [used[i] for i in range(len(weights))], place))
            return time - 1, d_state, d_products, factors, jax.tree.map(jnp.add, d_shared, d_shared_now)

        d_state = tuple(jnp.pad(d, ((0, width - d.shape[0]), (0, 0))) for d in d_state)
        last = order.ends[stage] - 1
        first = order.ends[stage - 1] if stage else jnp.zeros((), integer)
        _, d_state, d_products, factors, d_shared = lax.while_loop(
            lambda carry, first=first: carry[0] >= first, body, (last, d_state, d_products, factors, d_shared)
        )
    # Rows of no sequence have zero gradients, so the products need no mask.
    d_weights = tuple(weight_gradient(rows, d) for rows, d in zip(factors, d_products, strict=True))
    d_inputs = tuple(
        jnp.where(order.real[:, None], _take(d, order.reverse), 0) if has else None
        for d, has in zip(d_products, has_input, strict=True)
    )
    return None, d_inputs, d_weights, d_shared, tuple(d[order.ranks] for d in d_state)


def _take(rows, places):
    # Twice as fast on CPU as indexing, which checks for places out of range.
    return rows.at[places].get(mode="promise_in_bounds")


recur.defvjp(_forward, _backward)
