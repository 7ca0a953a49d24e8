"""A recurrence over rows in batch order, given as a function of one step, compiled and differentiated as a loop.

Unlike `recurrence`, which knows the form of its cells, this takes any function. The loop runs for as many steps as the
batch has. The backward loop recomputes every step from the states before it, but reuses the saved products with
weights, and leaves the gradients of the weights to one large product after the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid import kernels
from refluid.ops.control.equations import Equations
from refluid.ops.core.gradients import custom_vjp
from refluid.ops.core.values import is_inexact
from refluid.ops.sequence.loop_buffers import known_product, slices, weight_gradient, written


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
      given: rows of all steps in batch order, followed by one more row per sequence.
      initial: the states before the first step, a row for each sequence.

    Returns:
      For each state, its rows before the first step, followed by its rows of all steps in batch order; and the rows
      to keep of all steps in batch order. What follows the rows of the last step is undefined.
    """
    leaves, tree = jax.tree.flatten(outside)

    def iteration(leaves, changing):
        time, running, *rows = changing
        now, states = rows[: len(given)], rows[len(given) :]
        after, kept = step(time, jax.tree.unflatten(tree, leaves), now, states)
        # Ended sequences keep their state, so that padding rows stay as finite as real ones.
        after = [_where(running, new.astype(old.dtype), old) for new, old in zip(after, states, strict=True)]
        return [*after, *kept]

    now = [jax.ShapeDtypeStruct((frame.width, *x.shape[1:]), x.dtype) for x in given]
    running = jax.ShapeDtypeStruct((frame.width,), bool)
    changing = [jnp.zeros((), jnp.int32), running, *now, *initial]
    with kernels.allowed(False):  # products by kernels cannot be recognized among equations
        equations = Equations(iteration, leaves, changing, frame.width)
        kept = jax.eval_shape(iteration, leaves, changing)[len(initial) :]
    loop = _Loop(equations, frame.width, frame.room, tuple((x.shape, x.dtype) for x in kept))
    return _run(loop, frame.starts, frame.count, equations.before(leaves), list(given), list(initial))


@dataclass(frozen=True, eq=False)
class _Loop:
    """The static description of a loop."""

    equations: Equations
    width: int  # how many sequences there are
    room: int  # for how many rows there is room
    kept: tuple[tuple[tuple[int, ...], Any], ...]  # shape and dtype of the rows to keep

    def buffers(self, shapes: Iterable[tuple[Sequence[int], Any]]) -> list[Any]:
        """Buffers for the rows of all steps."""
        return [jnp.zeros((self.room, *shape[1:]), dtype) for shape, dtype in shapes]

    def running(self, starts: Any, time: Any) -> Any:
        return jnp.arange(self.width) < starts[time + 1] - starts[time]


@custom_vjp(0)
def _run(loop, starts, count, outside, given, initial):
    return _forward_loop(loop, starts, count, outside, given, initial, save=False)[:2]


def _forward(loop, starts, count, outside, given, initial):
    histories, kept, products = _forward_loop(loop, starts, count, outside, given, initial, save=True)
    return (histories, kept), (starts, count, outside, given, histories, products)


def _forward_loop(loop: _Loop, starts, count, outside, given, initial, *, save: bool):
    """Histories of the states, rows kept and, with ``save``, the products of all steps."""

    def body(carry):
        time, states, histories, kept, products = carry
        start = starts[time]
        made = {}

        def product(number, rows, weight):
            made[number] = rows @ weight
            return made[number]

        changing = [time, loop.running(starts, time), *slices(given, start, loop.width), *states]
        results = loop.equations.run(outside, changing, product)
        states, now = results[: len(states)], results[len(states) :]
        histories, kept = written(histories, states, start + loop.width), written(kept, now, start)
        products = written(products, [made[number] for number in range(len(products))], start)
        return time + 1, states, histories, kept, products

    products = loop.buffers((each.shape, each.dtype) for each in loop.equations.products) if save else []
    histories = [jnp.concatenate([x, room]) for x, room in zip(initial, loop.buffers(_shapes(initial)), strict=True)]
    carry = (jnp.zeros((), jnp.int32), initial, histories, loop.buffers(loop.kept), products)
    return lax.while_loop(lambda carry: carry[0] < count, body, carry)[2:]


def _backward(loop: _Loop, residuals, gradients):
    starts, count, outside, given, histories, products = residuals
    width, described = loop.width, loop.equations.products
    weights = [outside[each.weight] for each in described]
    transposed = [weight.T for weight in weights]
    is_shared = [is_inexact(x) and not alone for x, alone in zip(outside, loop.equations.only_in_products, strict=True)]
    is_given, is_state = [is_inexact(x) for x in given], [is_inexact(x) for x in histories]
    is_kept = [jnp.issubdtype(dtype, jnp.inexact) for _, dtype in loop.kept]
    d_histories, d_kept = _only(gradients[0], is_state), _only(gradients[1], is_kept)

    def body(carry):
        time, d_states, d_given, d_shared, factors, d_products = carry
        start, after = starts[time], starts[time + 1]
        running = loop.running(starts, time)
        before = jnp.where(time == 0, 0, width + starts[jnp.maximum(time - 1, 0)])
        now, states, known = (
            slices(given, start, width),
            slices(histories, before, width),
            slices(products, start, width),
        )
        used = {}

        def replay(some_outside, some_now, some_states, known):
            def product(number, rows, _):
                used[number] = lax.stop_gradient(rows)
                return known_product(known[number], rows, transposed[number])

            changing = [*_filled(now, is_given, some_now), *_filled(states, is_state, some_states)]
            values = _filled(outside, is_shared, some_outside)
            results = loop.equations.run(values, [time, running, *changing], product)
            return _only(results, [*is_state, *is_kept])

        arguments = _only(outside, is_shared), _only(now, is_given), _only(states, is_state), known
        _, pullback = jax.vjp(replay, *arguments)
        coming = slices(d_histories, width + start, width)
        coming = [d + _where(running, g, 0) for d, g in zip(d_states, coming, strict=True)]
        coming += [_where(running, g, 0) for g in slices(d_kept, start, width)]
        d_shared_now, d_now, d_states, d_known = pullback(coming)
        # The slice of a step reaches into the next one, whose gradients are there already.
        d_now = [old + _where(running, new, 0) for old, new in zip(slices(d_given, start, width), d_now, strict=True)]
        d_shared = [old + new for old, new in zip(d_shared, d_shared_now, strict=True)]
        # Stored last step first, so that the rows of each step overwrite what the previous one wrote after its own.
        place = starts[-1] - after
        factors = written(factors, [used[number] for number in range(len(factors))], place)
        d_products = written(d_products, [_where(running, d, 0) for d in d_known], place)
        return time - 1, d_states, written(d_given, d_now, start), d_shared, factors, d_products

    carry = (
        jnp.asarray(count, jnp.int32) - 1,
        [jnp.zeros((width, *d.shape[1:]), d.dtype) for d in d_histories],
        [jnp.zeros_like(x) for x in _only(given, is_given)],
        [jnp.zeros_like(x) for x in _only(outside, is_shared)],
        loop.buffers(((width, weight.shape[0]), weight.dtype) for weight in weights),
        loop.buffers((each.shape, each.dtype) for each in described),
    )
    carry = lax.while_loop(lambda carry: carry[0] >= 0, body, carry)
    _, d_states, d_given, d_shared, factors, d_products = carry
    d_outside = _filled([None] * len(outside), is_shared, d_shared)
    for each, rows, d in zip(described, factors, d_products, strict=True):
        added = weight_gradient(rows, d)
        d_outside[each.weight] = added if d_outside[each.weight] is None else d_outside[each.weight] + added
    d_initial = [d + g[:width] for d, g in zip(d_states, d_histories, strict=True)]
    nothing = [None] * max(len(given), len(histories))
    return (
        None,
        None,
        d_outside,
        _filled(nothing[: len(given)], is_given, d_given),
        _filled(nothing[: len(histories)], is_state, d_initial),
    )


_run.defvjp(_forward, _backward)


def _shapes(values: Iterable[Any]) -> list[tuple[Sequence[int], Any]]:
    return [(value.shape, value.dtype) for value in values]


def _where(mask: Any, chosen: Any, other: Any) -> Any:
    return jnp.where(mask.reshape(-1, *(1,) * (chosen.ndim - 1)), chosen, other)


def _only(values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    return [value for value, is_wanted in zip(values, wanted, strict=True) if is_wanted]


def _filled(values: Sequence[Any], wanted: Sequence[bool], new: Sequence[Any]) -> list[Any]:
    ahead = iter(new)
    return [next(ahead) if is_wanted else value for value, is_wanted in zip(values, wanted, strict=True)]
