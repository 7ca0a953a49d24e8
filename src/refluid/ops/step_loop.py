"""A recurrence over rows in batch order, given as a function of one step; compiled, and differentiated, as a loop.

Unlike `recurrence`, which knows what its cells do, this takes any function. The loop runs for as many steps as the
batch asks for. Backward, every step is computed again from the states before it, so nothing but states is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.values import is_inexact


@dataclass(frozen=True)
class Frame:
    """The steps: where the rows of each begin, their number, the number of sequences, and the room for rows."""

    starts: Any
    count: Any
    width: int
    room: int


Step = Callable[[Any, Any, list[Any], list[Any]], tuple[list[Any], list[Any]]]


def step_loop(
    step: Step, frame: Frame, outside: Any, given: list[Any], initial: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Runs all steps.

    Args:
      step: called as ``step(t, outside, now, states)``, returns the next states and rows to keep.
      outside: values that stay the same, in any structure.
      given: rows of all steps in batch order, and after them as many as there are sequences.
      initial: the states before the first step, a row for each sequence.

    Returns:
      For each state, its rows before the first step, followed by its rows of all steps in batch order; and the rows
      to keep of all steps in batch order. What follows the rows of the last step is of no meaning.
    """
    leaves, tree = jax.tree.flatten(outside)
    inexact = tuple(map(is_inexact, leaves))
    floats, others = _only(leaves, inexact), _only(leaves, [not is_float for is_float in inexact])
    function = _Function(step, tree, inexact, frame.width, frame.room)
    return _loop(function, frame.starts, frame.count, floats, others, given, initial)


@dataclass(frozen=True, eq=False)
class _Function:
    """The step, with its outside values in two lists: those that gradients flow to, and the others."""

    step: Step
    tree: Any
    inexact: tuple[bool, ...]
    width: int  # how many sequences there are
    room: int  # for how many rows there is room

    def __call__(self, time, floats, others, now, states, running):
        ahead, aside = iter(floats), iter(others)
        leaves = [next(ahead) if is_float else next(aside) for is_float in self.inexact]
        after, kept = self.step(time, jax.tree.unflatten(self.tree, leaves), now, states)
        # What has ended keeps its state: rows of padding stay as finite as real ones.
        frozen = [_where(running, new.astype(old.dtype), old) for new, old in zip(after, states, strict=True)]
        return frozen, kept


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _loop(function, starts, count, floats, others, given, initial):
    width, room = function.width, function.room

    def turn(time, states):
        start = starts[time]
        running = jnp.arange(width) < starts[time + 1] - start
        return function(time, floats, others, _slices(given, start, width), states, running)

    def body(carry):
        time, states, histories, kept = carry
        start = starts[time]
        states, now = turn(time, states)
        return time + 1, states, _written(histories, states, start + width), _written(kept, now, start)

    zero = jnp.zeros((), jnp.int32)
    _, kept_now = jax.eval_shape(turn, zero, initial)
    kept = [jnp.zeros((room, *x.shape[1:]), x.dtype) for x in kept_now]
    histories = [jnp.concatenate([x, jnp.zeros((room, *x.shape[1:]), x.dtype)]) for x in initial]
    carry = (zero, initial, histories, kept)
    _, _, histories, kept = lax.while_loop(lambda carry: carry[0] < count, body, carry)
    return histories, kept


def _forward(function, starts, count, floats, others, given, initial):
    histories, kept = _loop(function, starts, count, floats, others, given, initial)
    return (histories, kept), (starts, count, floats, others, given, histories)


def _backward(function, residuals, gradients):
    starts, count, floats, others, given, histories = residuals
    d_histories, d_kept = gradients
    width = function.width
    is_float = [is_inexact(x) for x in given]
    has_state = [is_inexact(x) for x in histories]
    is_kept = [is_inexact(x) for x in d_kept]
    d_histories = [d for d, has in zip(d_histories, has_state, strict=True) if has]
    d_kept = [d for d, has in zip(d_kept, is_kept, strict=True) if has]

    def body(carry):
        time, d_states, d_given, d_floats = carry
        start = starts[time]
        running = jnp.arange(width) < starts[time + 1] - start
        before = jnp.where(time == 0, 0, width + starts[jnp.maximum(time - 1, 0)])
        now, states = _slices(given, start, width), _slices(histories, before, width)

        def replay(floats, some_now, some_states):
            after, kept = function(
                time, floats, others, _filled(now, is_float, some_now), _filled(states, has_state, some_states), running
            )
            return _only(after, has_state), _only(kept, is_kept)

        _, pullback = jax.vjp(replay, floats, _only(now, is_float), _only(states, has_state))
        coming = _slices(d_histories, width + start, width)
        d_after = [d + _where(running, g, 0) for d, g in zip(d_states, coming, strict=True)]
        d_now = [_where(running, g, 0) for g in _slices(d_kept, start, width)]
        d_floats_now, d_given_now, d_states = pullback((d_after, d_now))
        # The slice of a step reaches into the next ones, whose gradients are there already.
        added = [
            old + _where(running, new, 0) for old, new in zip(_slices(d_given, start, width), d_given_now, strict=True)
        ]
        d_floats = [old + new for old, new in zip(d_floats, d_floats_now, strict=True)]
        return time - 1, d_states, _written(d_given, added, start), d_floats

    d_states = [jnp.zeros((width, *d.shape[1:]), d.dtype) for d in d_histories]
    d_given = [jnp.zeros_like(x) for x in _only(given, is_float)]
    carry = (count.astype(jnp.int32) - 1, d_states, d_given, [jnp.zeros_like(x) for x in floats])
    _, d_states, d_given, d_floats = lax.while_loop(lambda carry: carry[0] >= 0, body, carry)
    d_initial = [d + g[:width] for d, g in zip(d_states, d_histories, strict=True)]
    nothing = [None] * len(given), [None] * len(histories)
    return (
        None,
        None,
        d_floats,
        [None] * len(others),
        _filled(nothing[0], is_float, d_given),
        _filled(nothing[1], has_state, d_initial),
    )


_loop.defvjp(_forward, _backward)


def _slices(buffers: list[Any], start: Any, width: int) -> list[Any]:
    return [lax.dynamic_slice_in_dim(buffer, start, width) for buffer in buffers]


def _written(buffers: list[Any], values: list[Any], start: Any) -> list[Any]:
    return [lax.dynamic_update_slice_in_dim(b, v, start, 0) for b, v in zip(buffers, values, strict=True)]


def _where(mask: Any, chosen: Any, other: Any) -> Any:
    return jnp.where(mask.reshape(-1, *(1,) * (chosen.ndim - 1)), chosen, other)


def _only(values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    return [value for value, is_wanted in zip(values, wanted, strict=True) if is_wanted]


def _filled(values: Sequence[Any], wanted: Sequence[bool], new: Sequence[Any]) -> list[Any]:
    ahead = iter(new)
    return [next(ahead) if is_wanted else value for value, is_wanted in zip(values, wanted, strict=True)]
