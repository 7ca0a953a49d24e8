"""Branches and loops over blocks.

They are compiled if XLA can express them, and otherwise run on the host, iteration by iteration. The lowering decides
(`refluid.lowering.host_ops`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from refluid.ops.core.infer import described_elsewhere
from refluid.ops.core.registry import op
from refluid.ops.core.services import RunBlock
from refluid.ops.core.values import plain
from refluid.ops.sequence.nested import without_padding

_BRANCH: dict[str, Any] = {
    "inputs": "Cond* Input*?",
    "outputs": "Out*? Scope?",
    "differentiable": "Input",
    "host": "branch",
    "lod": "aware",
    "infer": described_elsewhere,
    "overwrites": "Input:Out",
}


@op("conditional_block", **_BRANCH)
@op("conditional_block_infer", grad=None, **_BRANCH)
def conditional_block(conditions, inputs, *, run_block, sub_block, is_scalar_condition=False):
    """Runs the block if the condition holds; otherwise ``Out`` keeps the values that are among ``Input``.

    With a condition per row, both branches of an IfElse run, each on its rows.
    """
    env = _environment(run_block, "Input", inputs)
    names = run_block.names("Out")
    if not is_scalar_condition:
        return _select(run_block(sub_block, env), names), None
    holds = plain(conditions[0]).reshape(())
    if run_block.on_host or not isinstance(holds, Tracer):
        return _select(run_block(sub_block, env) if bool(holds) else env, names), None

    def take(env):
        return _select(run_block(sub_block, env), names)

    untouched = [
        env[name] if name in env else jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        for name, like in zip(names, jax.eval_shape(take, env), strict=True)
    ]
    return lax.cond(holds, take, lambda _: untouched, env), None


@op("select_input", inputs="X* Mask", outputs="Out", differentiable="X", lod="aware")
def select_input(xs, mask):
    """The input with index ``mask``, or the only one with a value: a branch on the host writes only if it is taken."""
    present = [x for x in xs if x is not None]
    if len(present) == 1:
        return present[0]
    return jax.tree.map(lambda *leaves: lax.select_n(_branch(mask, len(xs)), *leaves), *xs)


@op("select_output", inputs="X Mask", outputs="Out*", differentiable="X", infer=described_elsewhere)
def select_output(x, mask, *, run_block):
    """Passes x to the output with index ``mask``, and zeros to the others."""
    count = len(run_block.names("Out"))
    return [jnp.where(_branch(mask, count) == i, x, jnp.zeros_like(x)) for i in range(count)]


def _branch(mask, count: int):
    return jnp.clip(plain(mask).reshape(()).astype(jnp.int32), 0, count - 1)


@op(
    "while",
    inputs="X*? Condition",
    outputs="Out*? StepScopes?",
    differentiable="X",
    host="loop",
    lod="aware",
    infer=described_elsewhere,
    loops=True,
    overwrites="X:Out",
)
def while_(x, condition, *, run_block, sub_block, is_test=False):
    """Runs the block while the condition, which the block updates, holds."""
    env = _environment(run_block, "X", x)
    names = run_block.names("Out")
    (test,) = run_block.names("Condition")
    env[test] = condition
    left = run_block.loop(env, names, test)
    if left is not None:
        return _select(left, names), None
    if isinstance(condition, Tracer) and not run_block.on_host:
        return _compiled_loop(run_block, sub_block, env, names, test), None
    env = {name: _exact(value) for name, value in env.items()}
    iteration = 0
    while bool(plain(env[test]).reshape(())):
        after = run_block(sub_block, env, iteration)
        env.update((name, after[name]) for name in names if name in after)
        iteration += 1
    return _select(env, names), None


def _exact(value: Any) -> Any:
    return [without_padding(each) for each in value] if isinstance(value, list) else without_padding(value)


def _compiled_loop(run_block: RunBlock, sub_block: Any, env: dict[str, Any], names: list[str], test: str) -> list[Any]:
    start = {name: env[name] for name in {*names, test}}

    def iteration(state):
        count, carried = state
        after = run_block(sub_block, {**env, **carried}, count)
        return count + 1, {
            name: jax.tree.map(lambda new, old: new.astype(old.dtype), after[name], old)
            for name, old in carried.items()
        }

    _, end = lax.while_loop(lambda state: plain(state[1][test]).reshape(()), iteration, (jnp.int32(0), start))
    return _select(end, names)


def _environment(run_block: RunBlock, slot: str, values: list[Any]) -> dict[str, Any]:
    return {name: v for name, v in zip(run_block.names(slot), values, strict=True) if v is not None}


def _select(env: dict[str, Any], names: list[str]) -> list[Any]:
    return [env.get(name) for name in names]
