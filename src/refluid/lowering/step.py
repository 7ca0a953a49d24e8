"""Steps: a program planned and compiled for one form of feeds and fetches, and bound to the scopes it runs in.

The usual program is one compiled piece; a step then calls one jitted function and puts its state back, with no work per
op and as little as possible per variable. A program with host ops or exchanges in it runs piece by piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import jax
import numpy as np
from jax.sharding import PartitionSpec

from refluid import backend
from refluid.backend import Target
from refluid.ir.block import Block
from refluid.ir.vartype import VarType
from refluid.lowering.buckets import to_ragged
from refluid.lowering.compiled_piece import CompiledPiece, PieceFunction
from refluid.lowering.exchange import ExchangePiece
from refluid.lowering.host_piece import HostPiece
from refluid.lowering.joined import fetched
from refluid.lowering.pieces import Binding, Count, Holder, Options, Run, StepPiece
from refluid.lowering.plan import Piece, Where, make_plan
from refluid.lowering.staging import Staging, unstaged
from refluid.meshes import MeshTarget, Replicas
from refluid.places import Place
from refluid.scope import Scope
from refluid.tensors import LoDTensor, SelectedRowsTensor

_MAKERS: dict[Where, Callable[[Piece, Options], StepPiece]] = {
    Where.COMPILED: CompiledPiece,
    Where.HOST: HostPiece,
    Where.EXCHANGE: ExchangePiece,
}


class StepKey(NamedTuple):
    """What a compiled step of a program depends on. State is not part of it: a step may run in any scope."""

    version: int
    feeds: tuple[str, ...]
    signature: tuple[Any, ...]  # shapes and dtypes of the feeds
    fetches: tuple[str, ...]
    target: Any  # the device, or the mesh of several
    eager: bool
    padded: bool
    eager_loops: frozenset[int]  # loops that cannot be compiled, by the index of their block
    remote: frozenset[str]  # variables whose values other processes hold


class CompiledStep:
    """A block for one form of feeds and fetches at one place: its plan, and its pieces, which are compiled once."""

    def __init__(
        self,
        block: Block,
        feeds: Sequence[str],
        fetches: Sequence[str],
        place: Place,
        *,
        target: Target | None = None,
        eager: bool = False,
        padded: bool = False,
        eager_loops: frozenset[int] = frozenset(),
        remote: frozenset[str] = frozenset(),
        count: Count | None = None,
    ):
        fed = frozenset(feeds)
        remote = remote - fed
        plan = make_plan(block, fetches, eager_loops=eager_loops, remote=remote, padded=padded)
        target = target or backend.target(place.device())
        self.block, self.feeds, self.fetches = block, tuple(feeds), tuple(fetches)
        self.reads = tuple(name for name in plan.reads if name not in fed)
        self.options = Options(
            place,
            target,
            fed,
            frozenset(plan.persists),
            frozenset({*self.reads, *plan.persists}),
            _partitions(block) if isinstance(target, MeshTarget) else {},
            seeded=bool(block.program.random_seed),
            eager=eager,
            padded=padded,
            eager_loops=eager_loops,
            count=count or Count(),
        )
        self.pieces = [_MAKERS[piece.where](piece, self.options) for piece in plan.pieces]
        kinds = {piece.where for piece in plan.pieces}
        self.compiles = Where.COMPILED in kinds  # a server's program is nothing but an exchange
        self.communicates = Where.EXCHANGE in kinds  # it may have to wait for other processes
        local_reads = {name for piece in plan.pieces if piece.where is not Where.EXCHANGE for name in piece.reads}
        # Read as a whole in every run: exchanges take the rows they need.
        self.whole_remote = remote.intersection(plan.reads) & {*local_reads, *fetches}
        self.remote_writes = remote.intersection(plan.persists)
        self._is_single = len(plan.pieces) == 1 and self.compiles and not eager and not self.whole_remote
        self.bound: WeakKeyDictionary[Scope, Step] = WeakKeyDictionary()

    def bind(self, scope: Scope) -> Step:
        """Binds the step to a scope, without running it."""
        if self._is_single:
            return (ReplicatedStep if isinstance(self.options.target, Replicas) else SinglePieceStep)(self, scope)
        return PieceByPieceStep(self, scope)

    def step_in(self, scope: Scope) -> Step | None:
        """The step stored for a scope, if its variables are still the same."""
        found = self.bound.get(scope)
        return found if found is not None and found.epoch == scope.epoch else None


class Step(ABC):
    """A compiled step bound to a scope and its variables. It does not keep the scope alive."""

    def __init__(self, compiled: CompiledStep, scope: Scope):
        options = compiled.options
        self.compiled, self.epoch = compiled, scope.epoch
        self.holders = {name: _holder(scope, compiled.block, name) for name in {*compiled.reads, *options.persists}}
        self._scope = ref(scope)
        self._binding = Binding(self._scope, self.holders, options.target, options.partitions)
        self._binding.move_state()
        program = compiled.block.program
        self._program_uid, self._seed = program.uid, program.random_seed
        self._is_random = any(piece.is_random for piece in compiled.pieces)
        # A step reuses the memory of the state it changes, so threads must change it one at a time.
        changes = any(piece.changes_state for piece in compiled.pieces)
        self._alone = scope.changing if changes else nullcontext()
        self._meeting = options.target.meeting

    def __call__(self, feeds: Sequence[Any]) -> list[Any]:
        """Runs the step and returns the fetched values, as JAX arrays or SelectedRows."""
        if self._meeting is not None:
            with self._meeting(), self._alone:
                return self._run(feeds, self._key_data() if self._is_random else None)
        with self._alone:
            return self._run(feeds, self._key_data() if self._is_random else None)

    @abstractmethod
    def _run(self, feeds: Sequence[Any], key_data: np.ndarray | None) -> list[Any]: ...

    def expect(self, feeds: Mapping[str, Any]) -> None:
        """Announces the feeds of the step after this one, so that exchanges can request early what that needs."""
        for expect in self._binding.on_expect:
            expect(feeds)

    @property
    def expects(self) -> bool:
        """Whether an exchange of the step requests anything early."""
        return bool(self._binding.on_expect)

    def close(self) -> None:
        """Closes what the step shares with other processes."""
        for close in self._binding.on_close:
            close()

    def _key_data(self) -> np.ndarray:
        scope = self._scope()
        assert scope is not None, "the caller of a step holds its scope"
        return np.array([self._seed or scope.entropy, scope.next_step(self._program_uid) + 1], np.uint32)


class SinglePieceStep(Step):
    """A step that is one compiled piece."""

    def __init__(self, compiled: CompiledStep, scope: Scope):
        super().__init__(compiled, scope)
        (piece,) = compiled.pieces
        assert isinstance(piece, CompiledPiece)
        position = {name: i for i, name in enumerate(compiled.feeds)}
        self._piece = piece
        self.function: PieceFunction | None = None
        self._mutable = [self.holders[n] for n in piece.mutable]
        self._others = [(position.get(n, -1), None if n in position else self.holders[n]) for n in piece.others]
        self._written = [(self.holders[n], i) for i, n in enumerate(piece.writes) if n in compiled.options.persists]
        self._fetched = [piece.writes.index(n) if n in piece.writes else None for n in compiled.fetches]
        self._awaited = any(index is not None for index in self._fetched)
        self._stage = Staging() if compiled.options.target.is_cpu else unstaged

    def _run(self, feeds: Sequence[Any], key_data: np.ndarray | None) -> list[Any]:
        fed = self._stage(feeds)
        state = [holder.value for holder in self._mutable]
        others = [fed[index] if holder is None else holder.value for index, holder in self._others]
        function = self.function
        if function is None:
            function = self.function = self._piece.function(state, others, key_data)
        if function.checks.on_feeds or function.guard is not None:
            function.check_feeds(state, others, key_data)
        try:
            results, flags = function.call(state, others, key_data)
        except ValueError:  # JAX rejects arguments on another device, as after the scope was run at another place
            if not self._binding.move_state():
                raise
            return self._run(feeds, key_data)
        for holder, index in self._written:
            holder.value = results[index]
        if flags:
            function.check_flags(flags)
        if not self._awaited and results:
            # JAX may still be reading the fed arrays in place on another thread; the caller may modify them after this.
            jax.block_until_ready(results[0])
        return self._fetch(results, feeds)

    def _fetch(self, results: Sequence[Any], feeds: Sequence[Any]) -> list[Any]:
        return [self._unwritten(i, feeds) if index is None else results[index] for i, index in enumerate(self._fetched)]

    def _unwritten(self, fetch: int, feeds: Sequence[Any]) -> Any:
        name = self.compiled.fetches[fetch]
        if name in self.compiled.feeds:
            return feeds[self.compiled.feeds.index(name)]
        return self.holders[name].value


class ReplicatedStep(SinglePieceStep):
    """A step that is one compiled piece, for several replicas."""

    def __init__(self, compiled: CompiledStep, scope: Scope):
        super().__init__(compiled, scope)
        target = compiled.options.target
        assert isinstance(target, Replicas)
        self._stage = target.feed
        self._is_plain = target.local == target.replicas and compiled.options.state.isdisjoint(compiled.fetches)

    def _fetch(self, results: Sequence[Any], feeds: Sequence[Any]) -> list[Any]:
        values = super()._fetch(results, feeds)
        return values if self._is_plain else fetched(self.compiled.fetches, values, self.compiled.options)


class PieceByPieceStep(Step):
    """A step of several pieces, or of one that is not compiled."""

    def __init__(self, compiled: CompiledStep, scope: Scope):
        super().__init__(compiled, scope)
        self._pieces = [piece.bind(self._binding) for piece in compiled.pieces]
        self._replicas = compiled.options.target if isinstance(compiled.options.target, Replicas) else None

    def _run(self, feeds: Sequence[Any], key_data: np.ndarray | None) -> list[Any]:
        compiled = self.compiled
        env = {name: holder.value for name, holder in self.holders.items() if holder.value is not None}
        fed = feeds if self._replicas is None else self._replicas.feed(feeds)
        env.update(zip(compiled.feeds, fed, strict=True))
        for name in compiled.whole_remote:
            env[name] = jax.device_put(np.asarray(env[name]), compiled.options.target.device)
        run = Run(env, key_data)
        for piece in self._pieces:
            piece(run)
        jax.block_until_ready([env.get(name) for name in compiled.options.persists])
        if self._replicas is not None:
            return fetched(compiled.fetches, [env[name] for name in compiled.fetches], compiled.options)
        return [env[name] for name in compiled.fetches]


def _partitions(block: Block) -> dict[str, PartitionSpec]:
    return {name: PartitionSpec(*axes) for name, axes in block.program.partitions.items()}


def _holder(scope: Scope, block: Block, name: str) -> Holder:
    """Something with a ``value``: the scope's tensor of that name, or its variable where that is not a tensor."""
    variable = scope.var(name)
    described = block.find_var_recursive(name)
    is_tensor = described is None or described.type == VarType.LOD_TENSOR
    if not is_tensor or isinstance(variable.holder, SelectedRowsTensor):
        return variable
    tensor = variable.get_tensor()
    has_sequences = bool(tensor._lod) or (described is not None and described.lod_level)
    return HeldSequences(tensor) if has_sequences else tensor


@dataclass
class HeldSequences:
    """A tensor of a scope whose offsets are part of its value."""

    tensor: LoDTensor

    @property
    def value(self) -> Any:
        tensor = self.tensor
        return to_ragged(tensor) if tensor._lod and tensor.value is not None else tensor.value

    @value.setter
    def value(self, value: Any) -> None:
        self.tensor._lod = ()
        self.tensor.value = value
