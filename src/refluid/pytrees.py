"""Parameters of programs as trees of arrays: ``fc_0.w_0`` is ``tree["fc_0"]["w_0"]``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from refluid.errors import UninitializedError
from refluid.ir.program import Program
from refluid.ir.variable import Parameter, Variable
from refluid.ir.vartype import VarType, as_numpy
from refluid.scope import Scope, global_scope
from refluid.tensors import copied

Path = tuple[str, ...]


def to_pytree(program: Program, scope: Scope | None = None, *, persistables: bool = False) -> dict[str, Any]:
    """The parameters of a program as a tree of dicts, with names cut at their dots.

    >>> tree = refluid.to_pytree(fluid.default_main_program())
    >>> jax.tree.map(jnp.shape, tree)
    {'fc_0': {'b_0': (1,), 'w_0': (13, 1)}}

    Args:
      scope: where values are; by default the global scope.
      persistables: whether to include all persistable variables, such as the state of optimizers.

    Raises:
      UninitializedError: the startup program has not run.
    """
    variables = _variables(program, persistables)
    found = {name: _value(name, scope or global_scope()) for name in variables}
    return nested({path: found[name] for name, path in paths(variables).items()})


def from_pytree(tree: Mapping[str, Any], program: Program, scope: Scope | None = None) -> None:
    """Sets variables of a program to the values in a tree, as `to_pytree` returns it; all of them or none.

    Args:
      tree: may hold some of the program's persistable variables only.
      scope: where values are set; by default the global scope.

    Raises:
      ValueError: the program has no such variable, or one of another shape or dtype.
    """
    variables = _variables(program, persistables=True)
    names = {path: name for name, path in paths(variables).items()}
    # A tree of parameters only may have been cut where a tree of all variables is not.
    names |= {path: name for name, path in paths(_variables(program, persistables=False)).items()}
    given: dict[str, Any] = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        path = tuple(str(key.key) for key in keys)
        name = names.get(path, ".".join(path))
        if name not in variables:
            raise ValueError(f"from_pytree: the program has no persistable variable {name}")
        expected, array = variables[name], leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        dtype = as_numpy(expected.dtype)
        if (tuple(array.shape), array.dtype) != (tuple(expected.shape), dtype):
            raise ValueError(
                f"from_pytree: {name} is {dtype}{list(expected.shape)} in the program, "
                f"but {array.dtype}{list(array.shape)} in the tree"
            )
        given[name] = array
    held = scope or global_scope()
    for name, array in given.items():
        held.var(name).get_tensor().value = copied(array)


def paths(names: Iterable[str]) -> dict[str, Path]:
    """Where each name is in a tree: cut at its dots, unless one is the beginning of another."""
    cut = {name: tuple(name.split(".")) for name in names}
    inner = {path[:depth] for path in cut.values() for depth in range(1, len(path))}
    whole = {path[0] for path in cut.values() if path in inner}
    return {name: (name,) if path[0] in whole else path for name, path in cut.items()}


def nested(by_path: Mapping[Path, Any]) -> dict[str, Any]:
    """A tree of dicts from values by path."""
    tree: dict[str, Any] = {}
    for path, value in by_path.items():
        inner = tree
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return tree


def _variables(program: Program, persistables: bool) -> dict[str, Variable]:
    found = program.global_block().vars.values()
    kinds = [v for v in found if v.persistable and v.type == VarType.LOD_TENSOR]
    return {v.name: v for v in kinds if persistables or isinstance(v, Parameter)}


def _value(name: str, scope: Scope) -> jax.Array:
    held = scope.find_var(name)
    if held is None or held.value is None:
        raise UninitializedError(name, "to_pytree", "run the startup program first")
    return copied(held.value)
