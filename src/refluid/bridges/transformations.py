"""Optax transformations as updates of single parameters, of all at once, and of the clock that parameters share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr
from jax.interpreters.partial_eval import dce_jaxpr
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey, tree_flatten_with_path

from refluid.bridges.separation import Separation, number, separate
from refluid.bridges.storage import Stored

_SMALL = 4  # the longest dim of parameters that a transformation is tried on ...
_TRIED = 4  # ... and how many of them are tried

Tree = dict[str, Any]  # of all parameters, by name; None for those that are left out


@dataclass(frozen=True)
class Leaf:
    """An array in the state of a transformation.

    Attributes:
      path: where it is, such as ``0.mu.fc_0.w_0``.
      owner: the parameter that it belongs to; None if all share it.
      form: how a variable holds it.
    """

    path: str
    owner: str | None
    form: Stored

    @property
    def name(self) -> str:
        """Its path without the parameter, such as ``0.mu``."""
        return self.path if self.owner is None else self.path.replace(self.owner, "").strip(".").replace("..", ".")


class Transformation:
    """A transformation of the gradients of parameters, of which shapes and dtypes are given by name.

    Raises:
      TypeError: its state does not consist of arrays.
    """

    def __init__(self, given: optax.GradientTransformation, params: Mapping[str, Any]):
        self.given: Any = optax.with_extra_args_support(given)
        self.params = dict(params)
        self.x64 = any(value.dtype == np.float64 for value in self.params.values())
        with self.types():
            self._state = jax.eval_shape(self.given.init, self.params)
        self.leaves = [Leaf(path, self._owner(keys), _form(path, leaf)) for keys, path, leaf in _flat(self._state)]

    def types(self) -> Any:
        """A context with the types of plain JAX, which has 64-bit ones if they are asked for."""
        return jax.enable_x64(self.x64)

    def _owner(self, keys: Sequence[Any]) -> str | None:
        return next((key.key for key in keys if isinstance(key, DictKey) and key.key in self.params), None)

    @property
    def clock(self) -> list[Leaf]:
        """The leaves that belong to no parameter."""
        return [leaf for leaf in self.leaves if leaf.owner is None]

    def owned(self, name: str) -> list[Leaf]:
        """The leaves of a parameter."""
        return [leaf for leaf in self.leaves if leaf.owner == name]

    def only(self, name: str, value: Any) -> Tree:
        """A tree in which one parameter has a value. All names are there: masks and labels by name still fit."""
        return {**dict.fromkeys(self.params), name: value}

    def run(self, grads: Tree, kept: Mapping[str, Any], params: Tree) -> tuple[Tree, dict[str, Any]]:
        """Updates, and the leaves afterwards by path; ``kept`` has those before, in the form of variables."""
        forms = {leaf.path: leaf.form for leaf in self.leaves}
        structure = jax.eval_shape(self.given.init, params)
        leaves = [forms[path].unpack(kept[path]) for _, path, _ in _flat(structure)]
        state = jax.tree.unflatten(jax.tree.structure(structure), leaves)
        updates, state = self.given.update(grads, state, params)
        return updates, {path: forms[path].pack(leaf) for _, path, leaf in _flat(state)}

    @cached_property
    def separation(self) -> Separation:
        """How the update of all parameters falls apart.

        Raises:
          Exception: what the transformation raises if it needs more than gradients and parameters.
        """
        paths = [leaf.path for leaf in self.leaves]

        def run(grads: Tree, leaves: list[Any], params: Tree) -> Any:
            updates, after = self.run(grads, dict(zip(paths, leaves, strict=True)), params)
            for name, param in params.items():
                if updates[name].shape != param.shape:
                    raise ValueError(f"the update of {name} has shape {list(updates[name].shape)}")
            return updates, [after[path] for path in paths]

        kept = [jax.ShapeDtypeStruct(leaf.form.shape, leaf.form.dtype) for leaf in self.leaves]
        with self.types():
            closed = jax.make_jaxpr(run)(self.params, kept, self.params)
        shapes = {name: tuple(value.shape) for name, value in self.params.items()}
        names = sorted(shapes)  # JAX sorts the keys of a dict
        owners = [leaf.owner for leaf in self.leaves]
        found = separate(
            closed,
            [*names, *owners, *names],
            [*(shapes[name] for name in names), *(value.shape for value in kept), *(shapes[name] for name in names)],
            [*names, *owners],
            shapes,
        )
        return found if found.joint is not None else self._if_usable(found)

    def _if_usable(self, found: Separation) -> Separation:
        """``found``, if the transformation can be used for single parameters."""
        try:
            for name, value in self.params.items():
                with self.types():
                    state = jax.eval_shape(self.given.init, self.only(name, value))
                if {path for _, path, _ in _flat(state)} != {leaf.path for leaf in (*self.clock, *self.owned(name))}:
                    return Separation(f"its state for {name} alone has another structure")
            different = self._different_alone()
        except Exception as error:  # noqa: BLE001 - a transformation may raise anything
            return Separation(f"it cannot be used for a single parameter: {str(error).splitlines()[0]}")
        return (
            found
            if different is None
            else Separation(f"the update of {different} depends on how many others there are")
        )

    def _different_alone(self) -> str | None:
        """A parameter whose update alone is not its update among all others, tried on small ones; None if all are.

        Following the computation for all of them does not show, for example, that a key is split among them.
        """
        random = np.random.RandomState(0)
        small = {
            name: random.randn(*(min(dim, _SMALL) for dim in value.shape)).astype(value.dtype)
            for name, value in self.params.items()
        }
        with self.types():
            updates, _ = self.given.update(small, self.given.init(small), small)
            for name in list(small)[:: max(1, len(small) // _TRIED)]:
                only = self.only(name, small[name])
                alone, _ = self.given.update(only, self.given.init(only), only)
                if not np.allclose(alone[name], updates[name], rtol=1e-5, equal_nan=True):
                    return name
        return None

    def initial(self, leaf: Leaf, param: Any) -> Any:
        """How a leaf begins, in the form of its variable, given the value of its parameter."""
        with self.types():
            state = self.given.init(self.only(leaf.owner or next(iter(self.params)), param))
            return leaf.form.pack(next(value for _, path, value in _flat(state) if path == leaf.path))

    def constant(self, leaf: Leaf) -> float | None:
        """The number that all elements of a leaf begin with; None if they depend on the parameter or differ."""
        assert leaf.owner is not None
        with self.types():
            closed = jax.make_jaxpr(lambda param: self.initial(leaf, param))(self.params[leaf.owner])
            jaxpr, used = dce_jaxpr(closed.jaxpr, [True])
            if any(used):
                return None
            try:
                return float(number(ClosedJaxpr(jaxpr, closed.consts)))
            except ValueError:  # not obviously one number: look at all of them
                (value,) = jax.jit(lambda: eval_jaxpr(jaxpr, closed.consts))()
                first, last = jnp.min(value), jnp.max(value)
                return float(first) if first == last else None


@dataclass(frozen=True, eq=False)
class ParameterUpdate:
    """Updates a parameter, a slice of it or some of its rows. ``factor`` is for its learning rate."""

    transformation: Transformation
    name: str
    factor: float = 1.0

    def __call__(self, param: Any, grad: Any, states: Sequence[Any], now: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The new parameter and its states."""
        whole, own = self.transformation, self.transformation.owned(self.name)
        kept = {leaf.path: value for leaf, value in zip(own, states, strict=True)}
        kept |= {leaf.path: value for leaf, value in zip(whole.clock, now, strict=True)}
        with whole.types():
            updates, after = whole.run(whole.only(self.name, grad), kept, whole.only(self.name, param))
            return _moved(param, updates[self.name], self.factor), [after[leaf.path] for leaf in own]

    def __repr__(self) -> str:
        return f"optax update of {self.name}"


@dataclass(frozen=True, eq=False)
class ClockUpdate:
    """Advances the clock by one step."""

    transformation: Transformation

    def advance(self, clock: Sequence[Any]) -> list[Any]:
        """The clock of the next step. It depends on no gradient, so any parameter will do."""
        whole = self.transformation
        name, param = next(iter(whole.params.items()))
        with whole.types():
            zeros = jnp.zeros(param.shape, param.dtype)
            kept = {leaf.path: value for leaf, value in zip(whole.clock, clock, strict=True)}
            kept |= {leaf.path: jnp.zeros(leaf.form.shape, leaf.form.dtype) for leaf in whole.owned(name)}
            _, after = whole.run(whole.only(name, zeros), kept, whole.only(name, zeros))
            return [after[leaf.path] for leaf in whole.clock]

    def __repr__(self) -> str:
        return "optax clock"


@dataclass(frozen=True, eq=False)
class JointUpdate:
    """Updates all parameters at once. ``reason`` says why."""

    transformation: Transformation
    factors: Sequence[float]
    reason: str

    def __call__(
        self, params: Sequence[Any], grads: Sequence[Any], states: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The new parameters and all states."""
        whole = self.transformation
        before = dict(zip(whole.params, params, strict=True))
        kept = {leaf.path: value for leaf, value in zip(whole.leaves, states, strict=True)}
        with whole.types():
            updates, after = whole.run(dict(zip(whole.params, grads, strict=True)), kept, before)
            steps = zip(before.items(), self.factors, strict=True)
            moved = [_moved(param, updates[name], factor) for (name, param), factor in steps]
            return moved, [after[leaf.path] for leaf in whole.leaves]

    def __repr__(self) -> str:
        return "optax update of all parameters"


def _moved(param: Any, update: Any, factor: float) -> Any:
    return optax.apply_updates(param, update if factor == 1.0 else update * factor)


def _flat(tree: Any) -> list[tuple[Any, str, Any]]:
    """Keys, path and value of every leaf."""
    return [(keys, ".".join(map(_word, keys)), leaf) for keys, leaf in tree_flatten_with_path(tree)[0]]


def _word(key: Any) -> str:
    match key:
        case DictKey(key=word) | FlattenedIndexKey(key=word):
            return str(word)
        case GetAttrKey(name=word):
            return word
        case SequenceKey(idx=number):
            return str(number)
    return str(key)


def _form(path: str, leaf: Any) -> Stored:
    try:
        return Stored.of(leaf)
    except TypeError as error:
        raise TypeError(f"its state {path} cannot be kept: {error}") from error
