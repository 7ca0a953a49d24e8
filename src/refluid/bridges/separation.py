"""What an optax transformation looks at: is found by following its computation, not by its name.

Every intermediate value has the parameters it depends on, and whether its elements depend on the same elements of these
parameters only. A function inside the computation that is not understood counts as one that mixes everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

# Primitives that compute each element of their result from the same elements of their operands.
_ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy cos cosh "
    "digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le lgamma log log1p logistic lt "
    "max min mul ne neg nextafter not optimization_barrier or pow reduce_precision rem round rsqrt select_n sign sin "
    "sinh sqrt square stop_gradient sub tan tanh xor".split()
)
# Primitives that only shape what is equal everywhere.
_SHAPING = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims")
_CALLS = ("pjit", "jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")


@dataclass(frozen=True)
class Trace:
    """What a value depends on.

    Attributes:
      owners: the parameters whose values, gradients or states it depends on.
      mixed: whether an element may depend on other elements of a parameter, or on its own place.
      uniform: whether all elements are equal.
    """

    owners: frozenset[str] = frozenset()
    mixed: bool = False
    uniform: bool = True

    @classmethod
    def elements_of(cls, owner: str) -> Trace:
        return cls(frozenset([owner]), uniform=False)

    def joined(self, other: Trace) -> Trace:
        """Of a value that is one of both, or an element-wise function of both."""
        return Trace(self.owners | other.owners, self.mixed or other.mixed, self.uniform and other.uniform)


_CONSTANT = Trace()


def follow(closed: Any, given: Sequence[Trace]) -> list[Trace]:
    """What the results of a jaxpr depend on."""
    constants = [_of_constant(constant) for constant in closed.consts]
    return _follow(closed.jaxpr, constants, given)


def _of_constant(constant: Any) -> Trace:
    return Trace(uniform=jax.numpy.ndim(constant) == 0, mixed=jax.numpy.ndim(constant) > 0)


def _follow(jaxpr: Any, constants: Sequence[Trace], given: Sequence[Trace]) -> list[Trace]:
    known: dict[Any, Trace] = dict(zip(jaxpr.constvars, constants, strict=True))
    known |= dict(zip(jaxpr.invars, given, strict=True))

    def read(atom: Any) -> Trace:
        return _of_constant(atom.val) if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        found = _of_equation(eqn, [read(atom) for atom in eqn.invars])
        known |= dict(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _of_equation(eqn: Any, given: Sequence[Trace]) -> list[Trace]:
    name, everything = eqn.primitive.name, _all(given)
    if name in _CALLS:
        return follow(_called(eqn), given)
    if name == "cond":
        chosen = [follow(branch, given[1:]) for branch in eqn.params["branches"]]
        return [_all([given[0], *each]) for each in zip(*chosen, strict=True)]
    if name in _ELEMENTWISE:
        return [everything] * len(eqn.outvars)
    if everything.uniform and not everything.mixed and name in _SHAPING:
        return [everything]
    is_number = all(not out.aval.shape for out in eqn.outvars) and everything.uniform
    return [Trace(everything.owners, everything.mixed or not is_number, is_number)] * len(eqn.outvars)


def _called(eqn: Any) -> Any:
    inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
    return inner if hasattr(inner, "consts") else ClosedJaxpr(inner, ())


def number(closed: Any, given: Sequence[Any] = ()) -> Any:
    """The number that all elements of the first result are, found without computing arrays.

    Raises:
      ValueError: the computation does not show it.
    """
    known: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    known |= dict(zip(closed.jaxpr.invars, given, strict=True))

    def read(atom: Any) -> Any:
        value = atom.val if isinstance(atom, Literal) else known[atom]
        if jax.numpy.ndim(value):
            raise ValueError("an array of several numbers")
        return value

    for eqn in closed.jaxpr.eqns:
        values = [read(atom) for atom in eqn.invars]
        if eqn.primitive.name in _SHAPING:
            found = values[0]
        elif eqn.primitive.name in _CALLS:
            found = number(_called(eqn), values)
        elif eqn.primitive.name in _ELEMENTWISE:
            found = eqn.primitive.bind(*values, **eqn.params)
        else:
            raise ValueError(f"{eqn.primitive.name} is not element-wise")
        known[eqn.outvars[0]] = found
    return read(closed.jaxpr.outvars[0])


def _all(traces: Sequence[Trace]) -> Trace:
    found = _CONSTANT
    for trace in traces:
        found = found.joined(trace)
    return found


@dataclass(frozen=True)
class Separation:
    """How the update of all parameters falls apart.

    Attributes:
      joint: why parameters cannot be updated apart from each other; None if they can.
      whole: the parameters that must be updated as a whole; the others element by element.
    """

    joint: str | None
    whole: frozenset[str] = frozenset()


def separate(
    closed: Any,
    arguments: Sequence[str | None],
    shapes: Sequence[tuple[int, ...]],
    results: Sequence[str | None],
    params: Mapping[str, tuple[int, ...]],
) -> Separation:
    """How an update falls apart.

    Args:
      closed: the jaxpr from gradients, states and parameters to updates and states.
      arguments: the parameter that each argument belongs to, None for those that all share.
      shapes: of the arguments.
      results: the parameter that each result belongs to.
      params: the shapes of the parameters.
    """
    given = [_of_argument(owner, shape, params) for owner, shape in zip(arguments, shapes, strict=True)]
    whole = set()
    for owner, found in zip(results, follow(closed, given), strict=True):
        others = sorted(found.owners - {owner})
        if others:
            what = "state that all parameters share" if owner is None else f"the update of {owner}"
            return Separation(f"{what} depends on {others[0]}")
        if owner is not None and found.mixed:
            whole.add(owner)
    return Separation(None, frozenset(whole))


def _of_argument(owner: str | None, shape: tuple[int, ...], params: Mapping[str, tuple[int, ...]]) -> Trace:
    if owner is not None and shape == params[owner]:
        return Trace.elements_of(owner)
    is_number = shape == (1,)  # which variables have instead of scalars
    return Trace(frozenset() if owner is None else frozenset([owner]), not is_number, is_number)
