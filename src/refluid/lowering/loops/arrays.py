"""Compiled loops that fill arrays of tensors, mainly beam searches.

The arrays become `Stacked`, with a slot for each possible iteration. To find the room that tensors need, an iteration
is traced with the room of the first tensors, then with that of the tensors it writes, until nothing grows. Gradients do
not flow through such a loop; if they must, or if no bound is known, it runs on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.vartype import VarType
from refluid.lowering.loops.forms import is_differentiated
from refluid.ops.control.stacked import MisfitError, Outline, Record, Stacked, joined_shape
from refluid.ops.control.steps import Steps
from refluid.ops.core.values import plain

if TYPE_CHECKING:
    from refluid.lowering.interpreter import BlockRunner
    from refluid.ops.core.checks import Requirement

Values = dict[str, Any]
Failed = dict[tuple[Operator, "Requirement"], Any]

ARRAY_OPS = ("read_from_array", "write_to_array", "lod_array_length")
_MOST_TRACES = 4  # after this many traces of an iteration, tensors are assumed to grow forever


@dataclass(frozen=True)
class ArrayForm:
    """A loop that fills arrays, of at most ``most`` iterations."""

    block: Block
    most: int


def array_form(operator: Operator) -> ArrayForm | None:
    """The form of a `while` that fills arrays in order, if a constant bounds it."""
    block: Block = operator.attrs["sub_block"]
    if operator.type != "while" or not _fills_arrays(block) or is_differentiated(operator):
        return None
    most = _bound(operator, block)
    if most is None or not _counts_positions(operator, block):
        return None
    return ArrayForm(block, most)


def _all_ops(block: Block) -> Iterator[Operator]:
    for op in block.ops:
        yield from op.within()


def _fills_arrays(block: Block) -> bool:
    return any(op.type == "write_to_array" for op in _all_ops(block))


def _bound(operator: Operator, block: Block) -> int | None:
    """The smallest constant that a counter of the loop must stay below."""
    (condition,) = operator.input("Condition")
    tests = {op.output("Out")[0]: op for op in _all_ops(block) if op.type in ("less_than", "less_equal")}
    joins = {op.output("Out")[0]: op for op in _all_ops(block) if op.type == "logical_and"}
    found, waiting = [], [condition]
    while waiting:
        name = waiting.pop()
        if name in tests:
            found.append(tests[name])
        elif name in joins:
            waiting += [*joins[name].input("X"), *joins[name].input("Y")]
    found = [op for op in found if _counts(operator, block, op.input("X")[0])]
    limits = [(_constant(operator, op.input("Y")[0]), op.type == "less_equal") for op in found]
    return min((limit + also for limit, also in limits if limit is not None), default=None)


def _counts_positions(operator: Operator, block: Block) -> bool:
    """Whether arrays are read and written at counters, so that there are no more positions than iterations."""
    positions = {name for op in _all_ops(block) if op.type in ARRAY_OPS for name in op.input("I")}
    return all(_counts(operator, block, name) for name in positions)


def _counts(operator: Operator, block: Block, name: str) -> bool:
    """Whether a variable starts as the constant 0 and is only ever incremented by one."""
    writers = [op for op in _all_ops(block) if name in op.output_arg_names and not op.sub_blocks()]
    counted = len(writers) == 1 and writers[0].type == "increment" and writers[0].attr("step") == 1
    return counted and _constant(operator, name) == 0


def _constant(operator: Operator, name: str) -> int | None:
    """The value of a variable before the loop, if it is a constant."""
    before = operator.block.ops[: operator.block.ops.index(operator)]
    writers = [op for op in before if name in op.output_arg_names]
    if len(writers) != 1 or writers[0].type != "fill_constant" or writers[0].input_arg_names:
        return None
    return int(float(writers[0].attrs.get("str_value") or writers[0].attrs.get("value", 0.0)))


def run_array_loop(run_block: BlockRunner, form: ArrayForm, env: Values, names: list[str], test: str) -> Values:
    """Runs the loop while ``test`` holds; returns the variables ``names`` after it."""
    block = form.block
    changing = {*names, test}
    missing = [name for name in changing if name not in env]
    arrays = {name: value for name, value in env.items() if isinstance(value, list)}
    if missing and not _are_arrays(block, missing):
        run_block.fall_back(f"{', '.join(missing)} have no value before the loop")
    arrays.update((name, []) for name in missing)
    try:
        likes = _rooms(run_block, block, env, arrays, changing)
        slots = max(form.most + 1, *(len(tensors) for tensors in arrays.values()), 1)
        stacked = {name: _stacked(arrays[name], likes[name], slots) for name in arrays if likes[name] is not None}
        end = _compiled(run_block, block, {**env, **stacked}, {n for n in changing if n in env or n in stacked}, test)
    except MisfitError as error:
        run_block.fall_back(str(error))
    return {name: end.get(name, arrays.get(name)) for name in names}


def _are_arrays(block: Block, names: list[str]) -> bool:
    variables = (block.find_var_recursive(name) for name in names)
    return all(variable is not None and variable.type == VarType.LOD_TENSOR_ARRAY for variable in variables)


def _stacked(tensors: list[Any], like: Any, slots: int) -> Stacked:
    if tensors:
        return Stacked.of_list(tensors, like, slots)
    empty = jax.tree.map(lambda part: jnp.zeros((slots, *part.shape), part.dtype), like)
    return Stacked(empty, jnp.zeros((), jnp.int64))


def _rooms(run_block: BlockRunner, block: Block, env: Values, arrays: dict[str, list], changing: set[str]) -> Values:
    """The room that the tensors of each array need."""
    likes: Values = {}
    for name, tensors in arrays.items():
        likes[name] = None
        for each in tensors:
            likes[name] = joined_shape(likes[name], each)
    for _ in range(_MOST_TRACES):
        records = {name: Record(like) for name, like in likes.items()}
        outlines = {name: Outline(record) for name, record in records.items()}
        # The values are not arguments, so that known ones stay known.
        jax.eval_shape(lambda o=outlines: _iteration(run_block, block, {**env, **o}, 0, changing))
        found = {name: record.like for name, record in records.items()}
        if jax.tree.map(_sizes, found) == jax.tree.map(_sizes, likes):
            return found
        likes = found
    return run_block.fall_back("the tensors of an array grow from iteration to iteration")


def _sizes(part: Any) -> Any:
    return part.shape


def _iteration(
    run_block: BlockRunner, block: Block, env: Values, number: Any, changing: set[str], failed: Failed | None = None
) -> Values:
    after = run_block.part(block, block.ops, env, number, run_block.key, failed)
    return {name: after[name] for name in changing if name in after}


def _compiled(run_block: BlockRunner, block: Block, env: Values, changing: set[str], test: str) -> Values:
    """The loop itself; it carries the results of the checks in its iterations and reports them at the end."""
    start = {name: env[name] for name in changing}
    checks: list[tuple[Operator, Requirement]] = []

    def trace():
        failed: Failed = {}
        _iteration(run_block, block, env, jnp.int32(0), changing, failed)
        checks.extend(failed)

    def body(state):
        count, carried, failed = state
        now = dict(zip(checks, failed, strict=True))
        after = _iteration(run_block, block, {**env, **carried}, count, changing, now)
        return count + 1, {name: _like(after[name], old) for name, old in carried.items()}, [now[c] for c in checks]

    jax.eval_shape(trace)
    state = (jnp.int32(0), start, [jnp.zeros((), bool) for _ in checks])
    _, end, failed = lax.while_loop(lambda state: plain(state[1][test]).reshape(()), body, state)
    run_block.report(dict(zip(checks, failed, strict=True)))
    return end


def _like(new: Any, old: Any) -> Any:
    if isinstance(old, Stacked | Steps):
        return new
    if jax.tree.structure(new) != jax.tree.structure(old) or plain(new).shape != plain(old).shape:
        raise MisfitError(f"a variable of shape {list(plain(old).shape)} becomes one of {list(plain(new).shape)}")
    return jax.tree.map(lambda a, b: a.astype(b.dtype), new, old)
