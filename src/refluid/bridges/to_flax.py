"""Programs as modules of flax.nnx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from refluid.inference.models import arguments_by_name
from refluid.ir import Parameter, Program, name_of
from refluid.ir.prune import drop_training_ops
from refluid.jax_function import to_jax
from refluid.pytrees import from_pytree, nested, paths
from refluid.scope import Scope


class Frozen(nnx.Variable):
    """A parameter that is not trained."""


class FluidModule(nnx.Module):
    """A program as a module of NNX; made by `to_flax`.

    Attributes:
      params: trainable parameters (`nnx.Param`), as attributes: ``module.params.fc_0.w_0``.
      stats: persistable variables that training changes, such as the averages of batch_norm (`nnx.BatchStat`).
      frozen: other persistable variables.
      rngs: the stream ``dropout``, if the program draws random numbers.
      deterministic: whether the program runs as ``clone(for_test=True)`` would; set by `train` and `eval`.
    """

    def __init__(
        self, program: Program, feeds: Sequence[str], fetches: Sequence[str], scope: Scope | None, rngs: nnx.Rngs
    ):
        training = program.clone()
        drop_training_ops(training)
        self.feeds, self.fetches = tuple(feeds), tuple(fetches)
        self._program = nnx.static(training)
        run, state = to_jax(training, feeds, fetches, scope)
        test, more = to_jax(training.clone(for_test=True), feeds, fetches, scope)
        self._run, self._test = nnx.static(run), nnx.static(test)
        state = {**more, **state}
        kinds = {name: self._kind(training, name, state) for name in state}
        self._paths = nnx.static(paths(state))

        def all_of(kind: type[nnx.Variable]) -> nnx.Dict:
            held = {self._paths[name]: kind(value) for name, value in state.items() if kinds[name] is kind}
            return _as_modules(nested(held))

        self.params, self.stats, self.frozen = all_of(nnx.Param), all_of(nnx.BatchStat), all_of(Frozen)
        is_random = any(inner.definition.random for op in training.global_block().ops for inner in op.within())
        self.rngs = rngs.fork() if is_random else None
        self.deterministic = False

    @staticmethod
    def _kind(program: Program, name: str, state: Any) -> type[nnx.Variable]:
        variable = program.global_block().var(name)
        if isinstance(variable, Parameter) and variable.trainable:
            return nnx.Param
        written = any(name in op.output_arg_names for op in program.global_block().ops)
        return nnx.BatchStat if written else Frozen

    def __call__(self, *values: Any, **named: Any) -> Any:
        """The fetched value, or a list of them; feeds are given in order or by name."""
        feeds = arguments_by_name(self.feeds, values, named)
        variables = self._variables()
        state = {name: variable.get_value() for name, variable in variables.items()}
        if self.deterministic:
            fetched, _ = self._test(state, key=jax.random.key(0), **feeds)  # drawn, but used by sampling ops only
        else:
            key = self.rngs.dropout() if self.rngs is not None else None
            fetched, changed = self._run(state, key=key, **feeds)
            for name, variable in variables.items():
                if isinstance(variable, nnx.BatchStat):
                    variable.set_value(changed[name])
        return fetched[0] if len(fetched) == 1 else fetched

    def write_back(self, scope: Scope | None = None) -> None:
        """Sets the program's variables in a scope, by default the global one, to the values of this module."""
        values = {self._paths[name]: variable.get_value() for name, variable in self._variables().items()}
        from_pytree(nested(values), self._program, scope)

    def _variables(self) -> dict[str, nnx.Variable]:
        found = {}
        for name, path in self._paths.items():
            for held in (self.params, self.stats, self.frozen):
                inner: Any = held
                for key in path:
                    inner = inner[key] if inner is not None and key in inner else None
                if inner is not None:
                    found[name] = inner
        return found


def to_flax(
    program: Program,
    feeds: Sequence[Any],
    fetches: Sequence[Any],
    scope: Scope | None = None,
    rngs: nnx.Rngs | None = None,
) -> FluidModule:
    """Converts a program to a module of flax.nnx, with its parameters.

    >>> module = refluid.to_flax(program, ["x"], [prediction])
    >>> optimizer = nnx.Optimizer(module, optax.adamw(1e-3), wrt=nnx.Param)
    >>> prediction = module(x)

    Backward and optimizer ops are left out. `module.eval()` and `module.train()` switch between testing and training.
    `module.write_back()` sets the parameters in the scope again, from where Fluid's functions save them.

    Args:
      program: a program without host ops.
      feeds: variables or names that become arguments.
      fetches: variables or names to return.
      scope: where parameters are read from; by default the global scope.
      rngs: where random numbers come from; by default seed 0.
    """
    names = [name_of(feed) for feed in feeds], [name_of(fetch) for fetch in fetches]
    return FluidModule(program, *names, scope, rngs or nnx.Rngs(0))


def _as_modules(tree: dict[str, Any]) -> nnx.Dict:
    return nnx.Dict({key: _as_modules(value) if isinstance(value, dict) else value for key, value in tree.items()})
