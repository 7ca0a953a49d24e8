"""Compiled pieces: runs of operators as one jitted function."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from refluid import kernels
from refluid.ir.operator import Operator
from refluid.lowering.checks import Checks, Guard
from refluid.lowering.interpreter import Context, run
from refluid.lowering.layout import channels_last
from refluid.lowering.over_mesh import everywhere, over_mesh, over_one_device
from refluid.lowering.pieces import Binding, BoundPiece, Options, Run, StepPiece
from refluid.lowering.plan import Piece
from refluid.lowering.sharded import Sharded, settled
from refluid.lowering.staging import Shifted
from refluid.meshes import MeshTarget, SharedDevice
from refluid.ops.core import replicas
from refluid.ops.core.noise import fold_in

_LARGE_MATRIX = 1 << 19  # elements


class CompiledPiece(StepPiece):
    """A piece as a function ``(mutable, others, key_data) -> (written, flags)``.

    ``mutable`` are persistable variables that the piece reads and writes: their buffers are donated. The function is
    jitted once for each form of the state (shapes and dtypes), because the checks depend on it.
    """

    def __init__(self, piece: Piece, options: Options):
        persists, feeds = options.persists, options.feeds
        self.piece, self.options = piece, options
        self.mutable = tuple(n for n in piece.reads if n in persists and n in piece.writes and n not in feeds)
        self.others = tuple(n for n in piece.reads if n not in self.mutable)
        self.writes = (*self.mutable, *(n for n in piece.writes if n not in self.mutable))
        self.is_random = piece.is_random
        self.changes_state = bool(self.mutable)
        self._functions: dict[Hashable, PieceFunction] = {}

    def bind(self, binding: Binding) -> BoundPiece:
        return BoundCompiledPiece(self, binding)

    def function(self, mutable: Sequence[Any], others: Sequence[Any], key_data: Any) -> PieceFunction:
        """The function for a state of this form."""
        fed = self.options.feeds
        form = _form([mutable, [value for name, value in zip(self.others, others, strict=True) if name not in fed]])
        found = self._functions.get(form)
        if found is None:
            found = PieceFunction(self)
            found.prepare(mutable, others, key_data)
            self._functions[form] = found
        return found


def _form(values: Any) -> Hashable:
    leaves, structure = jax.tree.flatten(values)
    return structure, tuple((getattr(leaf, "shape", None), getattr(leaf, "dtype", None)) for leaf in leaves)


class PieceFunction:
    """A compiled piece for one form of the state: the jitted function, and the checks that tracing it found."""

    def __init__(self, piece: CompiledPiece):
        self._piece, self._options = piece, piece.options
        self._target = piece.options.target
        self.checks = Checks(piece.options.feeds)
        self.guard: Guard | None = None
        self.in_step: tuple[int, ...] | None = None  # the checks that the step itself carries out; None for all
        self._position = {name: i for i, name in enumerate(piece.others)}
        # What the piece writes, and flags for `check_flags`: (mutable, others, key_data) -> (written, flags).
        self.call: Any = self._jitted()

    def _jitted(self) -> Any:
        if self._options.eager:
            return self._run
        target = self._target
        # Accelerators choose their own layouts.
        function = channels_last(self._run) if target.is_cpu else self._run
        options = target.compiler_options(_shares_products(self._piece.piece.schedule.ops))
        if isinstance(target, MeshTarget):
            return over_mesh(function, target, self._piece, options)
        if isinstance(target, SharedDevice):
            return over_one_device(function, target, self._piece, options)
        return jax.jit(function, donate_argnums=0, out_shardings=target.sharding, compiler_options=options)

    def prepare(self, mutable: Sequence[Any], others: Sequence[Any], key_data: Any) -> None:
        """Traces the piece, to find what must be checked, and how, before anything runs."""
        if self._options.eager:
            return
        traced = self.call.trace(mutable, others, key_data)
        count = len(self.checks.computed)
        if not count:
            return
        fed = [False] * len(jax.tree.leaves(list(mutable)))
        for name, value in zip(self._piece.others, others, strict=True):
            fed += [name in self._options.feeds] * len(jax.tree.leaves(value))
        guard = Guard.of(traced, count, [*fed, *(True for _ in jax.tree.leaves(key_data))])
        if guard.numbers:
            self.in_step = tuple(number for number in range(count) if number not in guard.numbers)
            self.guard, self.call = guard, self._jitted()
            self._options.count.total -= 1  # what was traced will not be compiled

    def check_feeds(self, mutable: Sequence[Any], others: Sequence[Any], key_data: Any) -> None:
        """Raises, before anything runs, if what was fed breaks a rule's requirement."""
        self.checks.check_feeds(others, self._position)
        if self.guard is not None:
            self.checks.check_flags(self.guard(mutable, others, key_data), self.guard.numbers)

    def check_flags(self, flags: Sequence[Any]) -> None:
        """Raises if a check inside the step failed; the state is unchanged then."""
        self.checks.check_flags(flags, self.in_step or range(len(flags)))

    def _run(self, mutable: Sequence[Any], others: Sequence[Any], key_data: Any) -> tuple[list[Any], list[Any]]:
        piece, eager = self._piece, self._options.eager
        if eager:
            mutable, others = self._target.move((mutable, others))
        others = [value.array() if isinstance(value, Shifted) else value for value in others]
        env = dict(zip((*piece.mutable, *piece.others), (*mutable, *others), strict=True))
        sharded = self._options.sharded
        env.update({name: Sharded(env[name]) for name in sharded & env.keys()})
        self.checks.begin(piece.piece.schedule.ops)
        self._options.count.total += not eager  # compiled pieces get here only while being traced
        with (
            jax.default_device(self._target.device),
            kernels.allowed(self._uses_kernels),
        ):
            run(piece.piece.schedule, env, self._context(key_data))
        written = [env.get(name) for name in piece.writes]
        if sharded:
            written = [settled(value, name in sharded) for name, value in zip(piece.writes, written, strict=True)]
        flags = self.checks.flags()
        if self.in_step is not None:
            flags = [flags[number] for number in self.in_step]
        if flags:  # a bad id must not change the state
            flags = everywhere(flags)
            fine = jnp.all(jnp.stack(flags))
            for i, before in enumerate(mutable):
                written[i] = jax.tree.map(lambda new, old: jnp.where(fine, new, old), written[i], before)
        return written, flags

    @property
    def _uses_kernels(self) -> bool:
        # A kernel has no form for replicas that share a device, nor for devices that share a replica.
        target = self._target
        divided = isinstance(target, SharedDevice) or (isinstance(target, MeshTarget) and target.is_divided)
        return target.is_cpu and not self._options.eager and not divided

    def _context(self, key_data: Any) -> Context:
        context = Context(
            report=self.checks.report,
            padded=self._options.padded,
            exact=not self._options.padded,
            in_place=self._updates_in_place,
            eager_loops=self._options.eager_loops,
            sharded=bool(self._options.sharded),
        )
        if key_data is not None:
            key_data = jnp.asarray(key_data)
            context.key = context.seed_key = jax.random.wrap_key_data(key_data)
            if replicas.count() > 1:  # but parameters start alike
                context.key = fold_in(context.key, replicas.index())
            if self._options.seeded:
                context.seed_key = jax.random.wrap_key_data(key_data.at[1].set(0))
        return context

    def _updates_in_place(self) -> bool:
        """Whether the step may update the state in place: no check traced so far requires the old state."""
        return not (self.checks.computed if self.in_step is None else self.in_step)


class BoundCompiledPiece:
    """A compiled piece bound to a scope, in a step of several pieces."""

    def __init__(self, piece: CompiledPiece, binding: Binding):
        self._piece, self._binding = piece, binding
        self._function: PieceFunction | None = None

    def __call__(self, run: Run) -> None:
        try:
            self._run(run)
        except ValueError:  # JAX rejects arguments on another device, as after the scope was run at another place
            if not self._binding.move_state():
                raise
            run.env.update(self._binding.target.move({n: run.env.get(n) for n in self._piece.piece.reads}))
            self._run(run)

    def _run(self, run: Run) -> None:
        piece, env = self._piece, run.env
        persists, holders = piece.options.persists, self._binding.holders
        state, others = [env[n] for n in piece.mutable], [env.get(n) for n in piece.others]
        key_data = run.key_data if piece.is_random else None
        if self._function is None:
            self._function = piece.function(state, others, key_data)
        function = self._function
        function.check_feeds(state, others, key_data)
        results, flags = function.call(state, others, key_data)
        for name, value in zip(piece.writes, results, strict=True):
            if value is not None:
                env[name] = value
                if name in persists:
                    holders[name].value = value
        if flags:
            function.check_flags(flags)


def _shares_products(ops: Sequence[Operator]) -> bool:
    """Whether to share smaller matrix products between cores; see docs/decisions/0004-matrix-products.md."""
    return not any(op.definition.loops or _multiplies_back_by_large_matrix(op) for op in ops)


def _multiplies_back_by_large_matrix(op: Operator) -> bool:
    forward = op.definition.forward
    if forward is None or forward.matrix is None:
        return False
    matrix = op.block.find_var_recursive(op.input(forward.matrix)[0])
    return matrix is not None and math.prod(matrix.shape) >= _LARGE_MATRIX
