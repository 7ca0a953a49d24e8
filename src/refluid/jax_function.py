"""Programs as pure JAX functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.errors import FeedError, UninitializedError
from refluid.ir.program import Program
from refluid.ir.variable import name_of
from refluid.lowering.buckets import to_ragged
from refluid.lowering.interpreter import Context, run
from refluid.lowering.plan import Where, make_plan
from refluid.scope import Scope, global_scope
from refluid.tensors import LoDTensor, copied


def to_jax(
    program: Program, feeds: Sequence[Any], fetches: Sequence[Any], scope: Scope | None = None
) -> tuple[Callable[..., tuple[list[Any], dict[str, Any]]], dict[str, jax.Array]]:
    """Converts a program to a pure function, and returns it with its initial state.

    The function takes the state and the feeds by name, and returns the fetches and the new state::

        function, state = refluid.to_jax(program, ["x", "y"], [loss])
        (value,), state = jax.jit(function)(state, x=x, y=y)

    It can be jitted, differentiated with respect to the state or the feeds, vmapped and exported. A program with
    random ops takes ``key=``, a jax.random key. 64-bit values need jax.enable_x64 around the call. Sequences are given
    as LoDTensors or, like arguments of jitted functions, as `refluid.ops.core.values.Ragged`; they are returned so.

    Args:
      program: a program without host ops.
      feeds: variables or names that become arguments.
      fetches: variables or names to return.
      scope: where the initial state is read from; by default the global scope.

    Raises:
      ValueError: the program has host ops, which a pure function cannot contain.
    """
    feed_names = [name_of(v) for v in feeds]
    fetch_names = [name_of(v) for v in fetches]
    plan = make_plan(program.global_block(), fetch_names, feed_names)
    for piece in plan.pieces:
        if piece.where is not Where.COMPILED:
            host = piece.schedule.ops[0]
            raise ValueError(
                f"{host.type} runs on the host, so the program cannot become a pure function ({host.written_at})"
            )
    schedule = plan.pieces[0].schedule if plan.pieces else None
    state = _initial_state(plan.reads, feed_names, scope or global_scope(), schedule)

    def function(state: Mapping[str, Any], /, *, key: Any = None, **values: Any):
        missing = [name for name in feed_names if name not in values]
        if missing:
            raise FeedError(missing[0], "it is a required argument of this function")
        env = {**state, **{name: _value(values[name]) for name in feed_names}}
        if schedule is not None:
            run(schedule, env, Context(key=key, seed_key=key))
        return [env[name] for name in fetch_names], {name: env[name] for name in {*state, *plan.persists}}

    return function, state


def _value(value: Any) -> Any:
    if isinstance(value, LoDTensor) and value._lod:
        value = jax.tree.map(np.asarray, to_ragged(value))  # whose integers become those of the caller's JAX below
    return jax.tree.map(jnp.asarray, value)


def _initial_state(reads: Sequence[str], feeds: Sequence[str], scope: Scope, schedule: Any) -> dict[str, jax.Array]:
    state = {}
    for name in reads:
        if name in feeds:
            continue
        held = scope.find_var(name)
        if held is None or held.value is None:
            reader = next((op for op in schedule.ops if name in op.input_arg_names), None)
            by = "the fetch list" if reader is None else f"{reader.type} ({reader.written_at})"
            raise UninitializedError(name, by, "name it in feeds, or run the startup program first")
        state[name] = copied(held.value)
    return state
