"""Compiled steps: a plan bound to a scope, ready to be called with feeds.

The usual program is one compiled piece; `Step` then calls one jitted function and puts its state back, with no work per
op and as little as possible per variable. A program with host calls in it runs piece by piece.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid import backend, kernels, profiling
from refluid.ir.block import Block
from refluid.ir.operator import Operator
from refluid.ir.vartype import VarType
from refluid.lowering.checks import Checks, Guard
from refluid.lowering.exchange import Exchange, bind_exchange
from refluid.lowering.interpreter import Context, Schedule, run
from refluid.lowering.layout import channels_last
from refluid.lowering.plan import Piece, Where, make_plan
from refluid.lowering.staging import Shifted, Staging, unstaged
from refluid.lowering.value_files import read_values, write_values
from refluid.ops.core.values import SelectedRows
from refluid.scope import Scope

_LARGE_MATRIX = 1 << 19  # elements


@dataclass(frozen=True)
class HostContext:
    """What a host op may use besides its inputs."""

    operator: Any
    scope: Scope
    place: Any
    env: dict[str, Any]

    @property
    def caller(self) -> object:
        """Stands for the operator, for rules that count their calls."""
        return self.operator

    def names(self, slot: str) -> list[str]:
        """The names of the variables in a slot of the operator."""
        return self.operator.input(slot) or self.operator.output(slot)

    def write(self, values: Sequence[Any], path: str, overwrite: bool, as_half: bool) -> None:
        """Writes the op's inputs into a file."""
        write_values(path, self.operator.input("X"), values, self.scope, overwrite, as_half)

    def read(self, path: str, as_half: bool) -> list[Any]:
        """Values for the op's outputs, from a file."""
        return read_values(path, self.operator, self.scope, as_half)


class CompiledPiece:
    """One piece as a jitted function ``(mutable, others, words) -> (written, flags)``.

    ``mutable`` are persistable variables the piece reads and writes: their buffers are donated.
    """

    def __init__(
        self,
        piece: Piece,
        persists: frozenset[str],
        feeds: frozenset[str],
        seeded: bool,
        platform: str,
        eager: bool,
        padded: bool,
        eager_loops: frozenset[int],
    ):
        self.piece = piece
        self.mutable = tuple(n for n in piece.reads if n in persists and n in piece.writes and n not in feeds)
        self.others = tuple(n for n in piece.reads if n not in self.mutable)
        self.writes = (*self.mutable, *(n for n in piece.writes if n not in self.mutable))
        self.checks = Checks(feeds)
        self.is_random = piece.is_random
        self._seeded = seeded
        self._padded = padded
        self._eager_loops = eager_loops
        self._eager, self._platform = eager, platform
        self._guard: Guard | None = None
        self._in_step: tuple[int, ...] | None = None  # the checks that the step itself carries out; None for all
        self._call = self._jitted()
        self.compilations = 0

    def _jitted(self) -> Any:
        if self._eager:
            return self._run
        # Accelerators choose layouts by themselves.
        function = channels_last(self._run) if self._platform == "cpu" else self._run
        options = backend.compiler_options(self._platform, _shares_products(self.piece.schedule.ops))
        return jax.jit(function, donate_argnums=0, compiler_options=options)

    def prepare(self, mutable: Sequence[Any], others: Sequence[Any], words: Any) -> None:
        """Traces the piece: finds out what must be checked, and how, before anything runs."""
        if self._eager:
            return
        traced = self._call.trace(mutable, others, words)
        count = len(self.checks.computed)
        if not count:
            return
        fed = [False] * len(jax.tree.leaves(list(mutable)))
        for name, value in zip(self.others, others, strict=True):
            fed += [name in self.checks.feeds] * len(jax.tree.leaves(value))
        guard = Guard.of(traced, count, [*fed, *(True for _ in jax.tree.leaves(words))])
        if guard.numbers:
            self._in_step = tuple(number for number in range(count) if number not in guard.numbers)
            self._guard, self._call = guard, self._jitted()
            self.compilations = 0  # what was traced will not be compiled

    @property
    def has_checks(self) -> bool:
        """Whether `check_feeds` has something to do."""
        return bool(self.checks.on_feeds) or self._guard is not None

    def check_feeds(self, values: Mapping[str, Any], mutable: Sequence[Any], others: Sequence[Any], words: Any) -> None:
        """Raises, before anything runs, if what was fed breaks a rule's requirement."""
        for name in self.checks.on_feeds:
            self.checks.check_feed(name, values[name])
        if self._guard is not None:
            self.checks.check_flags(self._guard(mutable, others, words), self._guard.numbers)

    def __call__(
        self, mutable: Sequence[Any], others: Sequence[Any], words: Any
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """What the piece writes, and flags for `check_flags`, which raises if the step refused its inputs."""
        return self._call(mutable, others, words)

    def check_flags(self, flags: Sequence[Any]) -> None:
        """Raises if a check inside the step failed; the state is as it was then."""
        if flags:
            self.checks.check_flags(flags, self._in_step or range(len(flags)))

    def _run(self, mutable: Sequence[Any], others: Sequence[Any], words: Any) -> tuple[list[Any], list[Any]]:
        others = [value.array() if isinstance(value, Shifted) else value for value in others]
        env = dict(zip((*self.mutable, *self.others), (*mutable, *others), strict=True))
        self.checks.begin(self.piece.schedule.ops)
        self.compilations += not self._eager  # compiled pieces come here only to be traced
        with kernels.allowed(self._platform == "cpu" and not self._eager):
            run(self.piece.schedule, env, self._context(words))
        written = [env.get(name) for name in self.writes]
        flags = self.checks.flags()
        if self._in_step is not None:
            flags = [flags[number] for number in self._in_step]
        if flags:  # a bad id must not leave a trace in the state
            fine = jnp.all(jnp.stack(flags))
            for i, before in enumerate(mutable):
                written[i] = jax.tree.map(lambda new, old: jnp.where(fine, new, old), written[i], before)
        return written, flags

    def _context(self, words: Any) -> Context:
        context = Context(
            report=self.checks.report,
            padded=self._padded,
            in_place=self._updates_in_place,
            eager_loops=self._eager_loops,
        )
        if words is not None:
            words = jnp.asarray(words)
            context.key = context.seed_key = jax.random.wrap_key_data(words)
            if self._seeded:
                context.seed_key = jax.random.wrap_key_data(words.at[1].set(0))
        return context

    def _updates_in_place(self) -> bool:
        """Whether the step, as far as it is traced, will not have to leave the state as it was."""
        return not (self.checks.computed if self._in_step is None else self._in_step)


class Step:
    """One program, for one set of feed shapes and fetches, in one scope."""

    def __init__(
        self,
        block: Block,
        feed_names: Sequence[str],
        fetches: Sequence[str],
        scope: Scope,
        place: Any,
        eager: bool = False,
        padded: bool = False,
        eager_loops: frozenset[int] = frozenset(),
    ):
        plan = make_plan(block, fetches, eager_loops=eager_loops)
        program = block.program
        self.scope, self.place = scope, place
        self.feed_names, self.fetches = tuple(feed_names), tuple(fetches)
        self.program_uid = program.uid
        self.seed = program.random_seed
        self._traced = False
        self._padded = padded
        self._eager_loops = eager_loops
        feeds = frozenset(feed_names)
        self.persists = frozenset(plan.persists)
        self.reads = tuple(name for name in plan.reads if name not in feeds)
        self.pieces = [self._bind_piece(piece, feeds, eager) for piece in plan.pieces]
        self.holders = {name: _holder(scope, block, name) for name in {*self.reads, *self.persists}}
        self._is_random = any(isinstance(p, Piece) or p.is_random for p in self.pieces if not isinstance(p, Exchange))
        # A step takes over the memory of the state it changes, so threads change it one after the other.
        changes = any(isinstance(piece, CompiledPiece) and piece.mutable for piece in self.pieces)
        self._alone = scope.changing if changes else nullcontext()
        self._run = self._run_pieces
        if len(self.pieces) == 1 and isinstance(self.pieces[0], CompiledPiece) and not eager:
            self._bind(self.pieces[0])
            self._run = self._run_single

    def _bind_piece(self, piece: Piece, feeds: frozenset[str], eager: bool) -> Piece | CompiledPiece | Exchange:
        if piece.where is Where.HOST:
            return piece
        if piece.where is Where.EXCHANGE:
            return bind_exchange(piece, self.scope, self.place)
        platform = self.place.device().platform
        return CompiledPiece(
            piece, self.persists, feeds, bool(self.seed), platform, eager, self._padded, self._eager_loops
        )

    @property
    def compilations(self) -> int:
        """How often pieces of it were compiled: more than once where shapes change between them."""
        return sum(piece.compilations for piece in self.pieces if isinstance(piece, CompiledPiece))

    @property
    def compiles(self) -> bool:
        """Whether anything of it is compiled; a server's program is nothing but an exchange."""
        return any(isinstance(piece, CompiledPiece) for piece in self.pieces)

    @property
    def talks(self) -> bool:
        """Whether it exchanges anything with other processes, and may have to wait for them."""
        return any(isinstance(piece, Exchange) for piece in self.pieces)

    def close(self) -> None:
        """Ends the conversations with other processes that this step held."""
        for piece in self.pieces:
            if isinstance(piece, Exchange):
                piece.close()

    def _bind(self, piece: CompiledPiece) -> None:
        """Looks up once what every call of a single compiled piece needs."""
        place_in_feed = {name: i for i, name in enumerate(self.feed_names)}
        self._piece = piece
        self._mutable = [self.holders[n] for n in piece.mutable]
        self._others = [
            (place_in_feed.get(n, -1), None if n in place_in_feed else self.holders[n]) for n in piece.others
        ]
        self._written = [(self.holders[n], i) for i, n in enumerate(piece.writes) if n in self.persists]
        self._fetched = [piece.writes.index(n) if n in piece.writes else None for n in self.fetches]
        self._awaited = any(index is not None for index in self._fetched)
        self._stage = Staging() if self.place.device().platform == "cpu" else unstaged

    def __call__(self, feeds: Sequence[Any]) -> list[Any]:
        """Runs the step and returns the fetched values, as JAX arrays or SelectedRows."""
        with self._alone:
            return self._run(feeds, self._random_words() if self._is_random else None)

    def _run_single(self, feeds: Sequence[Any], words: Any) -> list[Any]:
        piece, stage = self._piece, self._stage
        state = [holder.value for holder in self._mutable]
        others = [stage(index, feeds[index]) if holder is None else holder.value for index, holder in self._others]
        if not self._traced:
            piece.prepare(state, others, words)
            self._traced = True
        if piece.has_checks:
            piece.check_feeds(dict(zip(self.feed_names, feeds, strict=True)), state, others, words)
        results, flags = piece(state, others, words)
        for holder, index in self._written:
            holder.value = results[index]
        piece.check_flags(flags)
        if not self._awaited and results:
            # JAX may run behind the caller's back and read the fed arrays in place: they are the caller's again now.
            jax.block_until_ready(results[0])
        return [self._unwritten(i, feeds) if index is None else results[index] for i, index in enumerate(self._fetched)]

    def _run_pieces(self, feeds: Sequence[Any], words: Any) -> list[Any]:
        env = {name: holder.value for name, holder in self.holders.items() if holder.value is not None}
        env.update(zip(self.feed_names, feeds, strict=True))
        pullbacks: dict[int, Any] = {}
        for piece in self.pieces:
            if isinstance(piece, CompiledPiece):
                self._run_compiled(piece, env, words)
            elif isinstance(piece, Exchange):
                self._run_exchange(piece, env)
            else:
                self._run_on_host(piece, env, words, pullbacks)
        jax.block_until_ready([env.get(name) for name in self.persists])
        return [env[name] for name in self.fetches]

    def _run_compiled(self, piece: CompiledPiece, env: dict[str, Any], words: Any) -> None:
        state, rest = [env[n] for n in piece.mutable], [env.get(n) for n in piece.others]
        piece_words = words if piece.is_random else None
        if not self._traced:
            piece.prepare(state, rest, piece_words)
        piece.check_feeds(env, state, rest, piece_words)
        results, flags = piece(state, rest, piece_words)
        for name, value in zip(piece.writes, results, strict=True):
            if value is not None:
                env[name] = value
                if name in self.persists:
                    self.holders[name].value = value
        piece.check_flags(flags)

    def _run_exchange(self, exchange: Exchange, env: dict[str, Any]) -> None:
        with profiling.record("exchange"):
            written = exchange(env)
        env.update(written)
        for name in written.keys() & self.persists:
            self.holders[name].value = written[name]

    def _run_on_host(self, piece: Piece, env: dict[str, Any], words: Any, pullbacks: dict[int, Any]) -> None:
        context = Context(
            report=Checks(frozenset()).report,
            host=lambda op: HostContext(op, self.scope, self.place, env),
            padded=self._padded,
            pullbacks=pullbacks,
            eager_loops=self._eager_loops,
        )
        if words is not None:
            context.key = context.seed_key = jax.random.wrap_key_data(jnp.asarray(words))
        for op in piece.schedule.ops:
            with profiling.record(op.type):
                run(Schedule((op,), piece.schedule.forward_of), env, context)
            for name in op.output_arg_names:
                if name in self.persists and name in env:
                    self.holders[name].value = env[name]

    def _random_words(self) -> np.ndarray:
        step = self.scope.next_step(self.program_uid)
        return np.array([self.seed or self.scope.entropy, step + 1], np.uint32)

    def _unwritten(self, fetch: int, feeds: Sequence[Any]) -> Any:
        name = self.fetches[fetch]
        if name in self.feed_names:
            return feeds[self.feed_names.index(name)]
        return self.holders[name].value


def _shares_products(ops: Sequence[Operator]) -> bool:
    """Whether smaller matrix products are better shared between cores; see docs/decisions/0004-matrix-products.md."""
    return not any(op.definition.loops or _multiplies_back_by_large_matrix(op) for op in ops)


def _multiplies_back_by_large_matrix(op: Operator) -> bool:
    forward = op.definition.forward
    if forward is None or forward.matrix is None:
        return False
    matrix = op.block.find_var_recursive(op.input(forward.matrix)[0])
    return matrix is not None and math.prod(matrix.shape) >= _LARGE_MATRIX


def _holder(scope: Scope, block: Block, name: str) -> Any:
    """Something with a ``value``: the scope's tensor of that name, or its variable where that is not a tensor."""
    variable = scope.var(name)
    described = block.find_var_recursive(name)
    is_tensor = described is None or described.type == VarType.LOD_TENSOR
    if variable.holder is None and is_tensor:
        return variable.get_tensor()
    return variable if isinstance(variable.value, SelectedRows) or not is_tensor else variable.get_tensor()
