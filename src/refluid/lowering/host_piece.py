"""Host pieces: operators that run one after the other, outside of compiled functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp

from refluid import profiling
from refluid.ir.operator import Operator
from refluid.lowering.buckets import with_room
from refluid.lowering.checks import Checks
from refluid.lowering.interpreter import Context, Schedule, run
from refluid.lowering.joined import copies_of, join, parts_of
from refluid.lowering.pieces import Binding, BoundPiece, Options, Run, StepPiece
from refluid.lowering.plan import Piece
from refluid.lowering.value_files import read_values, write_values
from refluid.meshes import Replicas
from refluid.places import Place
from refluid.scope import Scope


@dataclass(frozen=True)
class HostContext:
    """The context of a host op."""

    operator: Operator
    scope: Scope
    place: Place
    env: dict[str, Any]

    @property
    def caller(self) -> object:
        """Identifies the operator, for rules that count their calls."""
        return self.operator

    def names(self, slot: str) -> list[str]:
        """The names of the variables in a slot of the operator."""
        return self.operator.input(slot) or self.operator.output(slot)

    def write(self, values: Sequence[Any], path: str, overwrite: bool, as_half: bool) -> None:
        """Writes the op's inputs to a file."""
        write_values(path, self.operator.input("X"), values, self.scope, overwrite, as_half)

    def read(self, path: str, as_half: bool) -> list[Any]:
        """Reads values for the op's outputs from a file."""
        return read_values(path, self.operator, as_half)

    def join(self, endpoints: tuple[str, ...], rank: int) -> None:
        """Joins the processes at these endpoints; a single one has nobody to join."""
        if len(endpoints) > 1:
            import_module("refluid.runtime.collective").join(endpoints, rank)


class HostPiece(StepPiece):
    """Operators that need concrete values, or do input and output."""

    is_random = True  # it always receives the key

    def __init__(self, piece: Piece, options: Options):
        self.piece, self.options = piece, options

    def bind(self, binding: Binding) -> BoundPiece:
        return partial(self._run, binding)

    def _run(self, binding: Binding, this: Run) -> None:
        target = self.options.target
        if isinstance(target, Replicas):
            self._run_replicas(binding, this, target)
            return
        for name in self.piece.reads:
            if name in this.env:
                this.env[name] = target.move(this.env[name])
        with jax.default_device(target.device):
            self._run_operators(binding, this)

    def _run_replicas(self, binding: Binding, this: Run, target: Replicas) -> None:
        """Runs the operators for one replica after the other; once, if they use nothing that replicas have apart."""
        state = self.options.state
        reads = {name: this.env[name] for name in self.piece.reads if name in this.env}
        copies = {name: copies_of(value, target) for name, value in reads.items() if name in state}
        parts = {name: parts_of(value, target) for name, value in reads.items() if name not in state}
        runs = this.of_replicas(target.local if parts else 1)
        with jax.default_device(target.device):
            for replica in reversed(range(len(runs))):  # so that the scope keeps what the first one writes
                runs[replica].env = {name: own[replica] for name, own in {**copies, **parts}.items()}
                self._run_operators(binding, runs[replica])
        envs = [run.env for run in runs] if parts else [runs[0].env] * target.local
        for name in self.piece.writes:
            if name in envs[0]:
                this.env[name] = envs[0][name] if name in state else self._join(name, [env[name] for env in envs])

    def _join(self, name: str, parts: Sequence[Any]) -> Any:
        target = self.options.target
        assert isinstance(target, Replicas)
        try:
            return join(parts, target)
        except ValueError as error:
            writer = next(op for op in self.piece.schedule.ops if name in op.output_arg_names)
            shapes = " and ".join(str(list(getattr(part, "shape", ()))) for part in parts)
            raise writer.error(f"{name} has shapes on the devices that do not fit together: {shapes}") from error

    def _run_operators(self, binding: Binding, this: Run) -> None:
        scope, options, env = binding.scope(), self.options, this.env
        assert scope is not None, "the caller of a step holds its scope"
        context = Context(
            report=Checks(frozenset()).report,
            host=lambda op: HostContext(op, scope, options.place, env),
            padded=options.padded,
            exact=not options.padded,
            pullbacks=this.pullbacks,
            eager_loops=options.eager_loops,
        )
        if this.key_data is not None:
            context.key = context.seed_key = jax.random.wrap_key_data(jnp.asarray(this.key_data))
        for op in self.piece.schedule.ops:
            with profiling.record(op.type):
                run(Schedule((op,), self.piece.schedule.forward_of), env, context)
            if options.padded and op.definition.finds_rows:
                env.update({name: with_room(env[name]) for name in op.output_arg_names if name in env})
            for name in op.output_arg_names:
                if name in options.persists and name in env:
                    binding.holders[name].value = env[name]
