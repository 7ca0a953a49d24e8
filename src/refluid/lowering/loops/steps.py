"""The compiled loop of a DynamicRNN: all sequences take a step together, longest first.

The rows of a step are contiguous in batch order (see `recurrence`), so an iteration takes a slice with a row for each
sequence and treats those that have ended as padding. Operators that do not depend on a memory run once before the loop,
on the rows of all steps, and operators on which no memory depends run once after it; only the rest is a loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.lowering.loops.forms import StepForm
from refluid.lowering.loops.parts import Parts, is_rows, split_body
from refluid.ops.control.step_loop import Frame, step_loop
from refluid.ops.control.steps import RankTable, Steps, running
from refluid.ops.core.values import Ragged, plain
from refluid.ops.sequence.nested import item_room, with_room

if TYPE_CHECKING:
    from refluid.lowering.interpreter import BlockRunner

Values = dict[str, Any]


def run_step_loop(run_block: BlockRunner, form: StepForm, env: Values) -> Values:
    """Runs the loop; returns its arrays and the counter, by name."""
    frame = _frame(run_block, form, env)
    steps = {name: env[array] for array, names in form.inputs.items() for name in names}
    sliced = {name: array.items for name, array in steps.items() if not isinstance(array.items, Ragged)}
    moving = {*form.inputs, *form.outputs, *(memory.array for memory in form.memories), form.counter}
    values = {name: value for name, value in env.items() if name not in moving}
    nested = {name: array for name, array in steps.items() if name not in sliced}
    firsts = [_initial(run_block, env[memory.array], frame.width) for memory in form.memories]
    initial, counts = [plain(first) for first in firsts], [first.rows for first in firsts]
    outside = {"values": values, "nested": nested, "starts": frame.starts, "counts": counts, "key": run_block.key}

    iteration = _Iteration(run_block, form, form.body)
    now = {name: jax.ShapeDtypeStruct((frame.width, *x.shape[1:]), x.dtype) for name, x in sliced.items()}
    shapes = jax.eval_shape(iteration, jnp.zeros((), jnp.int32), outside, now, initial)
    parts = split_body(form, shapes, set(sliced), {name for name, x in sliced.items() if x.shape[0] == frame.room})
    _check(run_block, form, parts, shapes, initial)

    total = frame.starts[-1]
    rows = {**values, **{name: with_room(x, total) for name, x in sliced.items()}}
    rows = run_block.part(iteration.block, parts.early, rows, None, None)
    given = {name: plain(rows[name]) for name in parts.given}
    histories, kept = _run_core(iteration, parts, frame, outside, given, initial)
    rows.update((name, with_room(x, total)) for name, x in kept.items())
    rows = run_block.part(iteration.block, parts.late, rows, None, None)

    left = {form.counter: frame.count.astype(env[form.counter].dtype).reshape(1)}
    for array, name in form.outputs.items():
        left[array] = Steps(plain(rows[name]), frame.starts, frame.count, frame.width)
    for memory, history, count in zip(form.memories, histories, counts, strict=True):
        left[memory.array] = _remembered(history, count, frame)
    return left


def _frame(run_block: BlockRunner, form: StepForm, env: Values) -> Frame:
    """The steps according to the rank table or, if a loop without memories does not read it, to a step input."""
    if form.table in env:
        table: RankTable = env[form.table]
        return Frame(table.order.starts, table.steps, table.width, table.order.packed.shape[0])
    arrays: list[Steps] = [env[name] for name in form.inputs]
    if not arrays:
        run_block.fall_back("it reads no step of any sequence")
    return Frame(arrays[0].starts, arrays[0].count, arrays[0].width, item_room(arrays[0].items))


def _initial(run_block: BlockRunner, array: Any, width: int) -> Ragged:
    """A memory before the first iteration: a row for each sequence."""
    (value,) = array
    if isinstance(value, Ragged) and value.levels:
        run_block.fall_back("a memory consists of sequences")
    rows = plain(value)[:width]
    missing = [(0, width - rows.shape[0])] + [(0, 0)] * (rows.ndim - 1)
    return with_room(jnp.pad(rows, missing), value.rows if isinstance(value, Ragged) else rows.shape[0])


def _remembered(history: Any, count: Any, frame: Frame) -> Steps:
    """The array of a memory: its initial value, and its value after each step."""
    width = frame.width
    first = jnp.roll(history[:width], width - count, 0)
    starts = jnp.concatenate([(width - count).reshape(1), width + frame.starts]).astype(jnp.int32)
    return Steps(jnp.concatenate([first, history[width:]]), starts, frame.count + 1, width)


def _check(run_block: BlockRunner, form: StepForm, parts: Parts, shapes: Values, initial: list[Any]) -> None:
    """Makes the loop run on the host if something is not rows or changes its shape."""
    for name in (*parts.kept, *form.outputs.values()):
        if not is_rows(shapes[name]):
            run_block.fall_back(f"{name} is not rows, one for each sequence")
    for memory, before in zip(form.memories, initial, strict=True):
        after = shapes[memory.after]
        if (isinstance(after, Ragged) and after.levels) or after.shape != before.shape:
            run_block.fall_back(f"{memory.after} is not shaped like the memory that it updates")


@dataclass(frozen=True, eq=False)
class _Iteration:
    """One iteration of some operators of the loop, as a function of values."""

    run_block: BlockRunner
    form: StepForm
    ops: tuple[Operator, ...]

    @property
    def block(self) -> Block:
        return self.form.body[0].block

    def __call__(self, step: Any, outside: Values, now: Values, states: list[Any]) -> Values:
        """The variables after the iteration.

        Args:
          outside: what stays the same: values, arrays whose steps are sequences, where the rows of each step begin, how
            many rows of each memory are real at first, and the random key.
          now: rows of this step.
          states: the memories.
        """
        starts = outside["starts"]
        before = running(starts, step - 1)
        env = dict(outside["values"])
        env[self.form.counter] = step.astype(jnp.int64).reshape(1)
        env.update((name, array.at(step)) for name, array in outside["nested"].items())
        env.update((name, with_room(rows, running(starts, step))) for name, rows in now.items())
        for memory, rows, count in zip(self.form.memories, states, outside["counts"], strict=True):
            env.update((name, with_room(rows, jnp.where(step == 0, count, before))) for name in memory.reads)
        return self.run_block.part(self.block, self.ops, env, step, outside["key"])


def _run_core(
    iteration: _Iteration, parts: Parts, frame: Frame, outside: Values, given: Values, initial: list[Any]
) -> tuple[list[Any], Values]:
    """The loop itself: each memory before the first step and after every one, and the rows that are kept."""
    if not parts.core and not initial:
        return [], {}
    core = replace(iteration, ops=parts.core)

    def step(time, outside, now, states):
        env = core(time, outside, dict(zip(given, now, strict=True)), states)
        after = [plain(env[memory.after]) for memory in iteration.form.memories]
        return after, [plain(env[name]) for name in parts.kept]

    histories, kept = step_loop(step, frame, outside, list(given.values()), initial)
    return histories, dict(zip(parts.kept, kept, strict=True))
