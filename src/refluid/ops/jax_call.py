"""JAX functions as operators: what such an operator computes is its attribute ``call``.

Programs that contain one cannot be written to files, because a function is not data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ops.core.checks import require
from refluid.ops.core.registry import op

_INT32 = np.iinfo(np.int32)
_LEAF = jax.tree.structure(0)


@dataclass(frozen=True, eq=False)
class JaxCall:
    """A function, as operators call it.

    Attributes:
      title: what errors and printed programs call it: the same in every process that builds the program.
      function: called as ``function(inputs, params, states, key, is_test)``, with lists of arrays; returns a tree of
        results and a list of states.
      x64: whether the function sees and creates 64-bit values. Otherwise it works as in plain JAX, which has none.
      is_row_wise: whether a row of the results depends only on the same row of the inputs.
      structure: of the results; by default one array.
    """

    title: str
    function: Callable[[Sequence[Any], Sequence[Any], Sequence[Any], Any, bool], tuple[Any, Sequence[Any]]]
    x64: bool = False
    is_row_wise: bool = False
    structure: Any = _LEAF

    @classmethod
    def of_number(cls, function: Callable[[Any], Any]) -> JaxCall:
        """A function from a number to a number, which is a float32 array of one element."""

        def call(inputs: Sequence[Any], params: Any, states: Any, key: Any, is_test: bool) -> tuple[Any, Any]:
            return jnp.asarray(function(inputs[0][0]), jnp.float32).reshape(1), states

        return cls(getattr(function, "__qualname__", type(function).__name__), call)

    def tree(
        self, inputs: Sequence[Any], params: Sequence[Any], states: Sequence[Any], is_test: bool, key: Any
    ) -> tuple[Any, list[Any]]:
        """A tree of results, and the new states."""
        given = list(inputs) if self.x64 else list(map(_narrowed, inputs))
        with jax.enable_x64(self.x64):
            key = jax.random.key(0) if key is None else key  # for functions that split a key and do not use it
            results, states = self.function(given, params, states, key, is_test)
            return jax.tree.map(jnp.asarray, results), list(states)

    def __call__(
        self, inputs: Sequence[Any], params: Sequence[Any], states: Sequence[Any], is_test: bool, key: Any
    ) -> tuple[list[Any], list[Any]]:
        results, states = self.tree(inputs, params, states, is_test, key)
        leaves, structure = jax.tree.flatten(results)
        if structure != self.structure:
            mode = "testing" if is_test else "training"
            raise ValueError(f"{self.title} returns {structure} in {mode}, but {self.structure} when it was added")
        return leaves, states

    def __repr__(self) -> str:
        return self.title


def _narrowed(value: Any) -> Any:
    """A 64-bit integer array in the 32 bits that plain JAX has for it; an error in the step if a value does not fit."""
    if value.dtype not in (jnp.int64, jnp.uint64):
        return value
    require(
        (value >= _INT32.min) & (value <= _INT32.max),
        "a 64-bit integer does not fit into the 32 bits that JAX uses by default; pass x64=True to the layer",
    )
    return value.astype(jnp.int32)


def _row_wise(attrs: dict[str, Any], arguments: dict[str, list[Any]]) -> bool:
    return attrs["call"].is_row_wise


_FORM: dict[str, Any] = {
    "inputs": "X*? Param*? State*?",
    "outputs": "Out* StateOut*?",
    "differentiable": "X Param",
    "row_wise": _row_wise,
    "loops": True,  # or it may, for all we know: steps are then compiled as in plain JAX
}


@op("jax_call", **_FORM)
def jax_call(xs, params, states, *, call, is_test=False):
    """call(xs, params, states)."""
    return call(xs, params, states, is_test, None)


@op("random_jax_call", **_FORM, random="replayed")
def random_jax_call(xs, params, states, *, call, is_test=False, key):
    """call(xs, params, states), with random numbers."""
    return call(xs, params, states, is_test, key)
