"""The interpreter: runs the rules of operators, one after the other, on an environment of name -> value.

Values are tracers inside jax.jit and arrays outside; the interpreter does not distinguish them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from refluid.errors import OpError, UnknownOpError
from refluid.ir.backward import EMPTY
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.lowering import ragged, sharded
from refluid.lowering.folding import foldable_operators, known_around
from refluid.lowering.host_ops import HostOps
from refluid.lowering.loops.arrays import ArrayForm, run_array_loop
from refluid.lowering.loops.steps import run_step_loop
from refluid.lowering.lowered import lowered
from refluid.lowering.ragged import PaddingError
from refluid.ops.core.checks import Check, Requirement, collecting
from refluid.ops.core.gradients import Pullback, forward_with_pullback
from refluid.ops.core.noise import fold_in
from refluid.ops.core.registry import BOUNDARY, OpDef
from refluid.ops.core.values import plain

Environment = dict[str, Any]


def _never() -> bool:
    return False


@dataclass
class Context:
    """What a run of operators needs besides values."""

    key: Any = None  # jax.random key of this step
    seed_key: Any = None  # jax.random key of the program, the same in every step
    report: Callable[[Operator, Check, Any], None] | None = None
    host: Callable[[Operator], Any] | None = None  # makes the context of a host op
    padded: bool = False  # whether sequences may have padding rows
    exact: bool = False  # whether ops must not return any; pure functions may have some that an op has left
    in_place: Callable[[], bool] = _never  # whether the old state is no longer needed
    eager_loops: frozenset[int] = frozenset()  # loops that cannot be compiled, by the index of their block
    pullbacks: dict[int, Pullback] = field(default_factory=dict)
    sharded: bool = False  # whether replicas share out some of the state


@dataclass(frozen=True)
class Schedule:
    """Operators in order, with what the lowering knows about them."""

    ops: tuple[Operator, ...]
    forward_of: dict[int, int]  # id(gradient operator) -> id(the forward operator whose pullback it uses)
    folded: frozenset[int] = frozenset()  # operators that are evaluated while tracing
    stopped: frozenset[str] = frozenset()  # variables through which no gradient flows when the whole is differentiated

    @cached_property
    def groups(self) -> list[list[Operator]]:
        """The operators as they run; see `groups_together`."""
        return groups_together(self.ops)

    @classmethod
    def of(cls, ops: Sequence[Operator], folded: frozenset[int] = frozenset()) -> Schedule:
        return cls(tuple(ops), pair_gradients(ops), folded)

    @classmethod
    def of_inner(cls, block: Block) -> Schedule:
        """The schedule of an operator's block. It has no gradient ops: the operator is differentiated as a whole."""
        kept = lowered(block.program).inner  # loops look it up in every iteration
        version, known = kept.get(block.idx, (None, None))
        if known is not None and version == block.program._version:
            return known
        ops = tuple(op for op in block.ops if op.type not in BOUNDARY)
        written = (block.find_var_recursive(name) for op in ops for name in op.output_arg_names)
        stopped = frozenset(v.name for v in written if v is not None and v.stop_gradient)
        schedule = cls(ops, {}, foldable_operators(ops, known_around(block)), stopped)
        kept[block.idx] = block.program._version, schedule
        return schedule


def pair_gradients(ops: Sequence[Operator]) -> dict[int, int]:
    """Finds, for each derived gradient operator, the forward operator before it that made its inputs.

    Several match if variables are overwritten in place; their gradients follow in reverse order.
    """
    made: dict[Any, list[int]] = {}
    seen: dict[Any, int] = {}
    paired = {}
    for op in ops:
        definition = op.definition
        if definition.forward is not None:
            wanted = _identity(definition.forward.type, op.inputs, op.inputs, definition.forward)
            found = made.get(wanted)
            if found is not None:
                paired[id(op)] = found[-1 - seen.get(wanted, 0) % len(found)]
                seen[wanted] = seen.get(wanted, 0) + 1
        made.setdefault(_identity(op.type, op.inputs, op.outputs, definition), []).append(id(op))
    return paired


def _identity(type: str, inputs: dict, outputs: dict, definition: Any) -> Any:
    return (
        type,
        tuple(tuple(inputs.get(slot, ())) for slot in definition.input_names),
        tuple(tuple(outputs.get(slot, ())) for slot in definition.output_names),
    )


def run(schedule: Schedule, env: Environment, context: Context) -> None:
    """Runs every operator of the schedule on ``env``."""
    shared = frozenset(schedule.forward_of.values())
    for group in schedule.groups:
        definition = group[0].definition
        together = definition.together is not None and _may_run_together(definition, context)
        done = _run_together(group, env) if together else ()
        for op in group:
            if op not in done:
                _run_one(op, schedule, env, context, id(op) in shared)


def _may_run_together(definition: OpDef, context: Context) -> bool:
    return not definition.in_place or (context.in_place() and not context.sharded)


def _run_one(op: Operator, schedule: Schedule, env: Environment, context: Context, shared: bool) -> None:
    try:
        with collecting(lambda check, values: context.report and context.report(op, check, values)):
            if id(op) in schedule.folded:
                with jax.ensure_compile_time_eval():
                    outputs = _evaluate(op, env, context, None, False)
            else:
                pullback = context.pullbacks.get(schedule.forward_of.get(id(op), 0))
                outputs = _evaluate(op, env, context, pullback, shared)
    except (OpError, UnknownOpError, PaddingError):
        raise
    except Exception as error:
        raise explain(op, env, error) from error
    stopped = schedule.stopped if id(op) not in schedule.folded else frozenset()
    _write(op, outputs, env, stopped)


def _arguments(op: Operator, env: Environment) -> dict[str, list[Any]]:
    return {slot: [env.get(name) for name in names] for slot, names in op.inputs.items()}


def _write(
    op: Operator, outputs: dict[str, list[Any]], env: Environment, stopped: frozenset[str] = frozenset()
) -> None:
    for slot, names in op.outputs.items():
        for name, value in zip(names, outputs.get(slot, ()), strict=False):
            if name != EMPTY and value is not None:
                env[name] = jax.lax.stop_gradient(value) if name in stopped else value


def groups_together(ops: Sequence[Operator]) -> list[list[Operator]]:
    """The operators in order; those that one call of ``together`` can run are in one list.

    An operator joins a group as long as none in between conflicts with the group's reads and writes.
    """
    groups: list[list[Operator]] = []
    waiting: list[Operator] = []
    reads: set[str] = set()
    writes: set[str] = set()
    for op in ops:
        waits = op.definition.together is not None
        depends = not writes.isdisjoint([*op.input_arg_names, *op.output_arg_names])
        overwrites = not reads.isdisjoint(op.output_arg_names)
        if waiting and (depends or overwrites or (waits and not _alike(op, waiting[0]))):
            groups.append(waiting)
            waiting, reads, writes = [], set(), set()
        if waits:
            waiting.append(op)
            reads.update(op.input_arg_names)
            writes.update(op.output_arg_names)
        else:
            groups.append([op])
    return [*groups, waiting] if waiting else groups


def _alike(op: Operator, other: Operator) -> bool:
    definition = op.definition
    return other.definition is definition and definition.known_attrs(op.attrs) == definition.known_attrs(other.attrs)


def _run_together(ops: Sequence[Operator], env: Environment) -> list[Operator]:
    """Runs operators in one call where their op supports it; returns those that were run."""
    arguments = [_arguments(op, env) for op in ops]
    if any(map(ragged.has_ragged, arguments)):
        return []
    try:
        outputs = ops[0].definition.call_together(arguments, ops[0].attrs)
    except Exception as error:
        raise explain(ops[0], env, error) from error
    done = []
    for op, each in zip(ops, outputs, strict=True):
        if each is not None:
            _write(op, each, env)
            done.append(op)
    return done


def _evaluate(
    op: Operator, env: Environment, context: Context, pullback: Pullback | None, shared: bool
) -> dict[str, list[Any]]:
    arguments = _arguments(op, env)
    definition = op.definition
    if context.exact and definition.may_find_rows(arguments):
        definition = ragged.without_room(definition)
    if context.sharded:
        rows = sharded.rows_to_update(op, arguments)
        if rows is not None:
            outputs = _call(op, definition, sharded.own(arguments, rows), context, pullback, shared)
            return sharded.as_sharded(outputs, rows)
        arguments = sharded.whole(arguments)
    if not ragged.has_ragged(arguments):
        return _call(op, definition, arguments, context, pullback, shared)
    if context.padded and not definition.takes_padding(op.attrs, arguments):
        if not HostOps(context.eager_loops).runs_on_host(op):
            raise PaddingError(op)
        # Values are known here, so padding can be removed and added again.
        outputs = _call(op, definition, ragged.without_padding(arguments), context, pullback, shared)
        return ragged.with_padding(definition, arguments, outputs)
    arguments = ragged.with_padded_gradients(arguments, op)
    rows = arguments if definition.lod == "aware" else ragged.rows_of(arguments)
    try:
        outputs = _call(op, definition, rows, context, pullback, shared)
    except Exception as error:
        if not context.padded or isinstance(error, PaddingError):
            raise
        raise PaddingError(op, misfit=True) from error
    return ragged.masked_seed(op, ragged.as_sequences(definition, arguments, outputs))


def _call(
    op: Operator, definition: OpDef, arguments: dict, context: Context, pullback: Pullback | None, shared: bool
) -> dict[str, list[Any]]:
    if pullback is not None:
        return pullback(arguments)
    for slot in definition.static:
        if slot in arguments:
            # In loops that fill arrays, positions are traced; the rule knows which arrays allow it.
            arguments[slot] = [v if isinstance(v, Tracer) else np.asarray(plain(v)) for v in arguments[slot]]
    services: dict[str, Any] = {}
    if definition.random:
        services["key"] = operator_key(op, context)
    if "host" in definition.services and context.host is not None:
        services["host"] = context.host(op)
    if "run_block" in definition.services:
        services["run_block"] = BlockRunner(op, context)
    if "replaces_state" in definition.services:
        services["replaces_state"] = not set(op.input_arg_names).isdisjoint(op.output_arg_names)
    if not shared:
        return definition.call(arguments, op.attrs, **services)
    known = {slot: arguments[slot] for slot in definition.input_names if slot in arguments}
    outputs, context.pullbacks[id(op)] = forward_with_pullback(definition, known, op.attrs, **services)
    return outputs


@dataclass(frozen=True)
class BlockRunner:
    """Runs the blocks of a control-flow operator, for its rule."""

    op: Operator
    context: Context

    def names(self, slot: str) -> list[str]:
        """The names of the values in a slot, as the operator's blocks refer to them."""
        names = self.op.input(slot) or self.op.output(slot)
        return [self.op.originals.get(name, name) for name in names]

    @property
    def on_host(self) -> bool:
        """Whether values are concrete and may decide what runs."""
        return self.context.host is not None

    @property
    def key(self) -> Any:
        """The data of the step's random key, or None."""
        return None if self.context.key is None else jax.random.key_data(self.context.key)

    def __call__(self, block: Block, env: Environment, iteration: Any = 0) -> Environment:
        """The variables after a run of ``block``; each ``iteration`` draws its own random numbers."""
        env = dict(env)
        key = None if self.context.key is None else fold_in(self.context.key, iteration)
        # On the host, rules that run blocks have removed padding.
        padded, exact = self.context.padded and not self.on_host, self.context.exact or self.on_host
        context = replace(self.context, key=key, report=self._report, pullbacks={}, in_place=_never)
        context.padded, context.exact = padded, exact
        run(Schedule.of_inner(block), env, context)
        return env

    def loop(self, env: Environment, names: list[str], test: str) -> Environment | None:
        """The variables ``names`` after a `while`, or None if it has no special compiled form.

        Args:
          test: the name of the condition.
        """
        form = None if self.on_host else HostOps(self.context.eager_loops).loop_form(self.op)
        if isinstance(form, ArrayForm):
            return run_array_loop(self, form, env, names, test)
        return None if form is None else {**run_step_loop(self, form, env), test: jnp.zeros_like(plain(env[test]))}

    def part(
        self,
        block: Block,
        ops: Sequence[Operator],
        env: Environment,
        iteration: Any,
        key: Any,
        failed: dict[tuple[Operator, Requirement], Any] | None = None,
    ) -> Environment:
        """The variables after some operators of a compiled ``block``, on rows that may be padding.

        Args:
          iteration: None for operators that run once for all iterations: their checks are made outside the loop.
          failed: receives, for each check of an iteration, whether it failed. The loop must return these flags.
        """
        env = dict(env)
        if key is not None:
            key = fold_in(jax.random.wrap_key_data(key), 0 if iteration is None else iteration)

        def collect(op: Operator, check: Check, values: Any) -> None:
            if failed is not None and isinstance(values, Tracer):
                place = op, _requirement(check)
                failed[place] = ~check.holds(values) | failed.get(place, False)
            else:
                self._report(op, check, values)

        report = collect if iteration is not None else self.context.report
        context = replace(self.context, key=key, report=report, pullbacks={}, padded=True, exact=False, in_place=_never)
        try:
            run(replace(Schedule.of_inner(block), ops=tuple(ops)), env, context)
        except PaddingError as error:
            raise error.within(self.op) from error
        except OpError as error:
            # On the host it may work: shapes may change there. If it does not, that error is the one to raise.
            raise PaddingError(self.op, misfit=True).within(self.op) from error
        return env

    def report(self, failed: dict[tuple[Operator, Requirement], Any]) -> None:
        """Reports the results of the checks in a loop."""
        if self.context.report is not None:
            for (op, check), flag in failed.items():
                self.context.report(op, check, ~flag)

    def fall_back(self, problem: str) -> NoReturn:
        """Makes the loop run on the host instead, iteration by iteration."""
        raise PaddingError(self.op, misfit=True).within(self.op) from ValueError(problem)

    def refuse_padding(self) -> None:
        """Makes the program run without padding, if it has any: the operator returns rows that may be padding."""
        if self.context.padded and not self.on_host:
            raise PaddingError(self.op)

    def _report(self, op: Operator, check: Check, ids: Any) -> None:
        # A flag could not leave the loop or branch that is being traced.
        if self.context.report is not None and not isinstance(ids, Tracer):
            self.context.report(op, check, ids)


def _requirement(check: Check) -> Requirement:
    if isinstance(check, Requirement):
        return check
    return Requirement(f"a computed id of {check.slot} is not in [0, {check.bound})")


def operator_key(op: Operator, context: Context) -> Any:
    """The key of a random operator.

    The operator's own seed fixes the numbers permanently, as in Fluid. Otherwise they depend on the program's seed, the
    name of the variable and, unless the variable is a parameter being initialised, the step. Names are used instead of
    positions, so that a copy of the operator in a clone or a recomputed segment draws the same numbers, and so does its
    gradient (differs: seeded-dropout, seeded-parameters).
    """
    seed = op.attrs.get("seed", 0)
    if seed and op.attrs.get("fix_seed", True):
        return jax.random.key(seed)
    forward = op.definition.forward
    name = op.output_arg_names[0] if forward is None else op.input(forward.output_names[0])[0]
    name = op.originals.get(name, name)
    variable = op.block.find_var_recursive(name)
    base = context.seed_key if variable is not None and variable.persistable else context.key
    return fold_in(base, crc32((op.attrs.get("drawn_for") or name).encode()))


def explain(op: Operator, env: Environment, error: Exception) -> OpError:
    """The error with the op, the current shapes of its variables, and the user's line."""
    described = {}
    for name in op.input_arg_names:
        value = env.get(name)
        if value is None:
            described[name] = "(has no value)"
        elif hasattr(value, "shape") and hasattr(value, "dtype"):
            described[name] = f"{value.dtype}{list(value.shape)}"
    return op.error(str(error).strip().split("\n")[0] or type(error).__name__, described=described)
