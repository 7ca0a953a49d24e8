"""Channels-last images throughout a step.

Rules of convolutions and poolings work channels-last and transpose at their borders, because Fluid's images are
channels-first. XLA's CPU backend keeps every intermediate row-major: it does not eliminate such transposes, and
compiles them to slow loops. `channels_last` evaluates a traced function and defers the transposes back to
channels-first: they move through elementwise operations, broadcasts, reductions and the like until they meet a
transpose to channels-last, or an operation that needs the elements in order. No number changes, only its place in
memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

# Primitives whose output elements depend only on the input elements at the same place.
_ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy cos cosh
    digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le lgamma log log1p logistic lt max
    min mul ne neg nextafter not or population_count pow rem round rsqrt select_n sign sin sinh sqrt square
    stop_gradient sub tan tanh xor""".split()
)
_REDUCTIONS = frozenset("reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum".split())
# Calls that can be replaced by their bodies, because they are no longer differentiated.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


class Image:
    """A channels-first value whose elements are stored channels-last, in ``array``."""

    def __init__(self, array: Any):
        self.array = array
        self._transposed: Any = None

    def get(self) -> Any:
        if self._transposed is None:
            self._transposed = lax.transpose(self.array, _to_first(self.array.ndim))
        return self._transposed

    def reordered(self, sides: Sequence[Any]) -> list[Any]:
        """Reorders per-dim settings of the value for the dims of ``array``."""
        return [sides[dim] for dim in _to_last(self.array.ndim)]


class Spread:
    """``broadcast_in_dim(array, shape, dims)``, not carried out yet: it costs nothing in either order."""

    def __init__(self, array: Any, shape: Sequence[int], dims: Sequence[int]):
        self.array, self.shape, self.dims = array, tuple(shape), tuple(dims)
        self._made: Any = None

    def get(self) -> Any:
        if self._made is None:
            self._made = lax.broadcast_in_dim(self.array, self.shape, self.dims)
        return self._made

    def channels_last(self) -> Any:
        order = _to_last(len(self.shape))
        there = [order.index(dim) for dim in self.dims]
        array = lax.transpose(self.array, np.argsort(there)) if there != sorted(there) else self.array
        return lax.broadcast_in_dim(array, [self.shape[dim] for dim in order], sorted(there))


def channels_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, with images kept channels-last between the rules that use that layout."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        results = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), [_get(value) for value in results])

    return run


def _evaluate(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        outputs = _apply(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, inputs: list[Any]) -> Sequence[Any]:
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        jaxpr, consts = _open(params[_CALLS[name]])
        return _evaluate(jaxpr, consts, inputs)
    first = inputs[0] if inputs else None
    if name == "transpose":
        return [_transposed(first, tuple(params["permutation"]))]
    if name == "broadcast_in_dim" and len(inputs) == 1 and len(params["shape"]) in (4, 5):
        return [Spread(_get(first), params["shape"], params["broadcast_dimensions"])]
    if any(isinstance(value, Image) for value in inputs):
        if name in _ELEMENTWISE:
            return [Image(_bind(equation, map(_last, inputs), params)[0])]
        if name == "concatenate":
            parts = [_last(value) for value in inputs]
            return [Image(lax.concatenate(parts, _to_last(parts[0].ndim).index(params["dimension"])))]
        if isinstance(first, Image) and name in _REDUCTIONS and len(inputs) == 1:
            return [_reduced(equation, first)]
        if isinstance(first, Image) and name == "pad":
            return [Image(lax.pad(first.array, _get(inputs[1]), first.reordered(params["padding_config"])))]
        if isinstance(first, Image) and name == "slice":
            start, limit = first.reordered(params["start_indices"]), first.reordered(params["limit_indices"])
            strides = params["strides"] and first.reordered(params["strides"])
            return [Image(lax.slice(first.array, start, limit, strides))]
    return _bind(equation, map(_get, inputs), params)


def _transposed(value: Any, order: tuple[int, ...]) -> Any:
    if isinstance(value, Image):
        if order == _to_last(len(order)):
            return value.array
        # One transpose for both.
        return lax.transpose(value.array, [_to_first(len(order))[dim] for dim in order])
    if len(order) in (4, 5) and order == _to_first(len(order)):
        return Image(_get(value))
    return lax.transpose(_get(value), order)


def _reduced(equation: Any, value: Image) -> Any:
    axes = equation.params["axes"]
    order = _to_last(value.array.ndim)
    (out,) = _bind(equation, [value.array], {**equation.params, "axes": tuple(sorted(order.index(a) for a in axes))})
    left = [dim for dim in order if dim not in axes]  # the value's remaining dims, in the order of ``out``
    return lax.transpose(out, np.argsort(left)) if left != sorted(left) else out


def _to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _to_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _get(value: Any) -> Any:
    return value.get() if isinstance(value, Image | Spread) else value


def _last(value: Any) -> Any:
    """The elements of a channels-first value, channels-last; scalars as they are."""
    if isinstance(value, Image):
        return value.array
    if isinstance(value, Spread):
        return value.channels_last()
    return value if np.ndim(value) == 0 else lax.transpose(value, _to_last(np.ndim(value)))


def _open(inner: Any) -> tuple[Any, Sequence[Any]]:
    return (inner.jaxpr, inner.consts) if isinstance(inner, core.ClosedJaxpr) else (inner, ())


def _bind(equation: Any, inputs: Any, params: dict[str, Any]) -> Sequence[Any]:
    primitive = equation.primitive
    outputs = primitive.bind(*inputs, **primitive.get_bind_params(params))
    return outputs if primitive.multiple_results else [outputs]
