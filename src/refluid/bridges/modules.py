"""Flax modules, of linen and of NNX, behind one face: what they hold, how that begins, and how they run.

A module holds parameters and states (such as the statistics of a BatchNorm), by path. Here they are lists of arrays, in
the order of `Held`; random keys are given to every run.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx, traverse_util
from jax.core import eval_jaxpr
from jax.interpreters.partial_eval import dce_jaxpr

Path = tuple[Any, ...]

# Arguments by which modules are told whether they train, and what turns training off.
_OFF = {"train": False, "training": False, "deterministic": True, "use_running_average": True}
_RECORDS = "intermediates"  # what linen modules write down for others to look at; it is not state


@dataclass(frozen=True)
class Held:
    """The shapes and dtypes of what a module holds, by path."""

    params: Mapping[Path, Any]
    states: Mapping[Path, Any]


class Module(ABC):
    """A flax module and the method to call.

    Args:
      kind: its class.
      method: the name of the method.
      static: keyword arguments of it that are not arrays.
    """

    def __init__(self, kind: type, method: str, static: Mapping[str, Any]):
        if not callable(getattr(kind, method, None)):
            raise TypeError(f"{kind.__name__} has no method {method!r}")
        self.kind, self.method, self.static = kind, method, dict(static)
        self._told = [name for name in _OFF if name in inspect.signature(getattr(kind, method)).parameters]

    @property
    def title(self) -> str:
        """What printed programs call it."""
        return self.kind.__name__ if self.method == "__call__" else f"{self.kind.__name__}.{self.method}"

    @abstractmethod
    def held(self, arguments: Any) -> Held:
        """What the module holds if it is given arguments of these shapes, from now on."""

    @abstractmethod
    def initial(self, key: Any) -> tuple[dict[Path, Any], dict[Path, Any]]:
        """The params and states that the module begins with."""

    @abstractmethod
    def run(
        self, arguments: Any, params: Sequence[Any], states: Sequence[Any], key: Any, is_test: bool
    ) -> tuple[Any, Sequence[Any]]:
        """Results and new states."""

    def options(self, is_test: bool) -> dict[str, Any]:
        """Keyword arguments of the method."""
        told = {name: _OFF[name] if is_test else not _OFF[name] for name in self._told}
        return {**told, **self.static} if not is_test else {**self.static, **told}

    @cached_property
    def _beginning(self) -> tuple[Any, list[tuple[bool, Path]]]:
        """How everything begins, as one jaxpr, and what its results are: whether a param, and the path."""
        places: list[tuple[bool, Path]] = []

        def leaves(key: Any) -> list[Any]:
            params, states = self.initial(key)
            places[:] = [*((True, path) for path in params), *((False, path) for path in states)]
            return [*params.values(), *states.values()]

        return jax.make_jaxpr(leaves)(jax.random.key(0)), places

    def begin(self, is_param: bool, path: Path, key: Any) -> Any:
        """How one param or state begins; the others are not computed."""
        closed, places = self._beginning
        jaxpr, used = dce_jaxpr(closed.jaxpr, [place == (is_param, path) for place in places])
        return eval_jaxpr(jaxpr, closed.consts, *([key] if used[0] else []))[0]


class LinenModule(Module):
    """A module of flax.linen: described by its fields, with variables by collection outside of it."""

    def __init__(self, module: nn.Module, method: str, static: Mapping[str, Any], rngs: Sequence[str]):
        self.module, self._rngs = module, rngs
        super().__init__(type(module), method, static)

    def held(self, arguments: Any) -> Held:
        params, states = self._split(jax.eval_shape(lambda key: self._init(key, arguments), jax.random.key(0)))
        self._arguments, self._params, self._states = arguments, list(params), list(states)
        self._collections = sorted({path[0] for path in states})
        return Held(params, states)

    def initial(self, key: Any) -> tuple[dict[Path, Any], dict[Path, Any]]:
        return self._split(self._init(key, self._arguments))

    def _init(self, key: Any, arguments: Any) -> dict[Path, Any]:
        """All variables; those that exist in training only, such as an auxiliary head, come last."""
        args, kwargs = jax.tree.map(_zeros, arguments)
        found: dict[Path, Any] = {}
        for is_test in (True, False) if self._told else (True,):
            options = self.options(is_test)
            variables = self.module.init(self._keys(key), *args, **kwargs, **options, method=self.method)
            kept = {name: nn.unbox(tree) for name, tree in variables.items() if name != _RECORDS}
            found = {**traverse_util.flatten_dict(kept), **found}
        return {path: _as_array(path, leaf) for path, leaf in found.items()}

    def _split(self, flat: Mapping[Path, Any]) -> tuple[dict[Path, Any], dict[Path, Any]]:
        params = {path[1:]: leaf for path, leaf in flat.items() if path[0] == "params"}
        return params, {path: leaf for path, leaf in flat.items() if path[0] != "params"}

    def _keys(self, key: Any) -> dict[str, Any]:
        return {name: jax.random.fold_in(key, number) for number, name in enumerate(("params", *self._rngs))}

    def run(
        self, arguments: Any, params: Sequence[Any], states: Sequence[Any], key: Any, is_test: bool
    ) -> tuple[Any, Sequence[Any]]:
        args, kwargs = arguments
        flat = {("params", *path): leaf for path, leaf in zip(self._params, params, strict=True)}
        flat |= dict(zip(self._states, states, strict=True))
        mutable = [] if is_test else self._collections
        results, changed = self.module.apply(
            traverse_util.unflatten_dict(flat),
            *args,
            **kwargs,
            **self.options(is_test),
            method=self.method,
            rngs=self._keys(key),
            mutable=mutable,
        )
        if not mutable:
            return results, states
        written = traverse_util.flatten_dict(nn.unbox(changed))
        return results, [written.get(path, old) for path, old in zip(self._states, states, strict=True)]


class NNXModule(Module):
    """A module of flax.nnx: an object that holds its variables.

    Args:
      module: the module, whose values are where training begins; or a function from `nnx.Rngs` to it.
    """

    def __init__(self, module: nnx.Module | Callable[..., Any], method: str, static: Mapping[str, Any]):
        self._make: Callable[..., Any] | None = None
        if not isinstance(module, nnx.Module):
            self._make, make = module, module
            module = nnx.eval_shape(lambda: make(nnx.Rngs(0)))
            if not isinstance(module, nnx.Module):
                raise TypeError(f"the function must return an nnx.Module, not {type(module).__name__}")
        self._module = module
        self._graph, params, keys, states = nnx.split(module, nnx.Param, nnx.RngState, ...)
        self._params, self._keys, self._states = (list(nnx.to_flat_state(each)) for each in (params, keys, states))
        super().__init__(type(module), method, static)

    def held(self, arguments: Any) -> Held:
        return Held(_shapes(self._params), _shapes(self._states))

    def initial(self, key: Any) -> tuple[dict[Path, Any], dict[Path, Any]]:
        module = self._module if self._make is None else self._make(nnx.Rngs(key))
        _, params, _, states = nnx.split(module, nnx.Param, nnx.RngState, ...)
        return _values(nnx.to_flat_state(params)), _values(nnx.to_flat_state(states))

    def run(
        self, arguments: Any, params: Sequence[Any], states: Sequence[Any], key: Any, is_test: bool
    ) -> tuple[Any, Sequence[Any]]:
        args, kwargs = arguments
        keys = [_fresh(variable, jax.random.fold_in(key, i)) for i, (_, variable) in enumerate(self._keys)]
        parts = ((self._params, params), (self._keys, keys), (self._states, states))
        module = nnx.merge(self._graph, *(_filled(held, values) for held, values in parts))
        module.eval() if is_test else module.train()
        results = getattr(module, self.method)(*args, **kwargs, **self.options(is_test))
        _, _, _, changed = nnx.split(module, nnx.Param, nnx.RngState, ...)
        after, known = dict(nnx.to_flat_state(changed)), [path for path, _ in self._states]
        for path, variable in after.items():
            if path not in known and not isinstance(variable, nnx.Intermediate):
                raise ValueError(f"its variable {'.'.join(map(str, path))} does not exist before the call")
        return results, states if is_test else [after[path].get_value() for path in known]


def _zeros(value: Any) -> Any:
    return jnp.zeros(value.shape, value.dtype) if isinstance(value, jax.ShapeDtypeStruct) else value


def _as_array(path: Path, value: Any) -> Any:
    if hasattr(value, "shape"):
        return value
    text = ".".join(map(str, path))
    sown = "; return what you would sow" if isinstance(value, tuple) else ""
    raise TypeError(f"its variable {text} is a {type(value).__name__}, but programs hold arrays{sown}")


def _shapes(flat: Sequence[tuple[Path, Any]]) -> dict[Path, Any]:
    values = {path: _as_array(path, value) for path, value in _values(flat).items()}
    return {path: jax.ShapeDtypeStruct(value.shape, value.dtype) for path, value in values.items()}


def _values(flat: Any) -> dict[Path, Any]:
    return {path: variable.get_value() for path, variable in flat}


def _fresh(variable: Any, key: Any) -> Any:
    return key if isinstance(variable, nnx.RngKey) else jnp.zeros((), jnp.uint32)


def _filled(held: Sequence[tuple[Path, Any]], values: Sequence[Any]) -> Any:
    filled = ((path, variable.replace(value)) for (path, variable), value in zip(held, values, strict=True))
    return nnx.from_flat_state(list(filled))


def as_module(module: Any, method: Any, static: Mapping[str, Any], rngs: Sequence[str]) -> Module:
    """The module behind the face.

    Args:
      module: of linen or NNX; or what makes one of NNX from `nnx.Rngs`, a function or the class itself.
      method: its name or the method itself; None for ``__call__``.
      static: keyword arguments that are not arrays.
      rngs: names of linen's random streams.
    """
    name = "__call__" if method is None else method if isinstance(method, str) else method.__name__
    if isinstance(module, nn.Module):
        return LinenModule(module, name, static, rngs)
    if isinstance(module, type) and issubclass(module, nnx.Module):
        make: Any = module
        return NNXModule(lambda rngs: make(rngs=rngs), name, static)
    if isinstance(module, nnx.Module) or (callable(module) and not isinstance(module, type)):
        return NNXModule(module, name, static)
    raise TypeError(f"expected a flax module, or a function from nnx.Rngs to one, not {module!r}")
