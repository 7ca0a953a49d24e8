"""Branches and loops over blocks.

They are compiled where XLA can express them. Otherwise, with arrays of tensors or host ops inside, with shapes that
grow, or for gradients of loops, the rule runs eagerly on the host, one turn after the other.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from refluid.ops.control.array_loop import array_loop, run_array_loop
from refluid.ops.control.folding import compiles
from refluid.ops.control.loop_form import loop_form
from refluid.ops.control.rank_loop import run_steps
from refluid.ops.control.recurrent import given_shapes
from refluid.ops.core.infer import ShapeDtype, infer_outputs
from refluid.ops.core.registry import op
from refluid.ops.core.values import plain
from refluid.ops.sequence.nested import without_padding


def _branches_on_host(operator: Any) -> bool:
    """Whether a conditional block is too free for lax.cond.

    Without an earlier value, what the branch writes is zeros where it is not taken: no one may read it then. A name
    that may have one, and does not come in, keeps it on the host only.
    """
    block = operator.attrs["sub_block"]
    if not operator.attrs.get("is_scalar_condition", False) or not compiles(block):
        return True
    written = operator.input("Out") or operator.output("Out")
    return any(_may_hold_value(operator, name) for name in written if name not in operator.input("Input"))


def _may_hold_value(operator: Any, name: str) -> bool:
    outer = operator.block
    if outer.parent is not None:
        return name not in outer.vars
    return outer.may_hold(name, before=operator.attrs["sub_block"])


@op(
    "conditional_block",
    inputs="Cond* Input*?",
    outputs="Out*? Scope?",
    differentiable="Input",
    host=_branches_on_host,
    lod="aware",
    infer=given_shapes,
)
def conditional_block(conditions, inputs, *, run_block, sub_block, is_scalar_condition=False):
    """Runs the block if the condition holds; else ``Out`` keeps its values, as far as they are among ``Input``.

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
    """The input that the mask counts to. One alone is taken: a branch on the host writes only if it is taken."""
    present = [x for x in xs if x is not None]
    if len(present) == 1:
        return present[0]
    return jax.tree.map(lambda *leaves: lax.select_n(_branch(mask, len(xs)), *leaves), *xs)


@op("select_output", inputs="X Mask", outputs="Out*", differentiable="X", infer=given_shapes)
def select_output(x, mask, *, run_block):
    """x to the output that the mask counts to; zeros to the others."""
    count = len(run_block.names("Out"))
    return [jnp.where(_branch(mask, count) == i, x, jnp.zeros_like(x)) for i in range(count)]


def _branch(mask, count: int):
    return jnp.clip(plain(mask).reshape(()).astype(jnp.int32), 0, count - 1)


def _loops_on_host(operator: Any) -> bool:
    """Whether a loop is too free to be compiled: lax.while_loop cannot be differentiated and keeps shapes."""
    block = operator.attrs["sub_block"]
    if loop_form(operator) is not None or array_loop(operator) is not None:
        return False
    carried = {*operator.input("X"), *operator.input("Condition")}
    differentiated = any(
        other.type == "while_grad" and other.attrs["sub_block"] is block for other in operator.block.ops
    )
    if differentiated or operator.type == "while_grad" or not compiles(block):
        return True
    return not carried.issuperset(operator.output("Out")) or not _keeps_shapes(block, operator.output("Out"))


def _keeps_shapes(block: Any, names: list[str]) -> bool:
    """Whether another turn leaves the variables as the first one did, in shape and dtype."""
    after: dict[str, ShapeDtype] = {}
    for inner in block.ops:
        described = inner.described_inputs()
        for slot, values in described.items():
            described[slot] = [after.get(n, v) for n, v in zip(inner.input(slot), values, strict=True)]
        found = infer_outputs(inner.definition, described, inner.attrs)
        if found is None:
            return False
        after.update((n, v) for slot, values in found.items() for n, v in zip(inner.output(slot), values, strict=False))
    known = {name: block.find_var_recursive(name).shape for name in names}
    return all(-1 not in shape and (name not in after or after[name].shape == shape) for name, shape in known.items())


@op(
    "while",
    inputs="X*? Condition",
    outputs="Out*? StepScopes?",
    differentiable="X",
    host=_loops_on_host,
    lod="aware",
    infer=given_shapes,
)
def while_(x, condition, *, run_block, sub_block, is_test=False):
    """Runs the block as long as the condition, which it writes, holds."""
    env = _environment(run_block, "X", x)
    names = run_block.names("Out")
    (test,) = run_block.names("Condition")
    form = None if run_block.on_host else loop_form(run_block.op)
    if form is not None:
        left = {**run_steps(run_block, form, env), test: jnp.zeros_like(plain(condition))}
        return _select(left, names), None
    env[test] = condition
    loop = None if run_block.on_host else array_loop(run_block.op)
    if loop is not None:
        return run_array_loop(run_block, loop, sub_block, env, names, test), None
    if isinstance(condition, Tracer) and not run_block.on_host:
        return _compiled_loop(run_block, sub_block, env, names, test), None
    env = {name: _exact(value) for name, value in env.items()}
    turn = 0
    while bool(plain(env[test]).reshape(())):
        after = run_block(sub_block, env, turn)
        env.update((name, after[name]) for name in names if name in after)
        turn += 1
    return _select(env, names), None


def _exact(value: Any) -> Any:
    return [without_padding(each) for each in value] if isinstance(value, list) else without_padding(value)


def _compiled_loop(run_block: Any, block: Any, env: dict[str, Any], names: list[str], test: str) -> list[Any]:
    start = {name: env[name] for name in {*names, test}}

    def turn(state):
        count, carried = state
        after = run_block(block, {**env, **carried}, count)
        return count + 1, {
            name: jax.tree.map(lambda new, old: new.astype(old.dtype), after[name], old)
            for name, old in carried.items()
        }

    _, end = lax.while_loop(lambda state: plain(state[1][test]).reshape(()), turn, (jnp.int32(0), start))
    return _select(end, names)


def _environment(run_block: Any, slot: str, values: list[Any]) -> dict[str, Any]:
    return {name: v for name, v in zip(run_block.names(slot), values, strict=True) if v is not None}


def _select(env: dict[str, Any], names: list[str]) -> list[Any]:
    return [env.get(name) for name in names]
