"""A traced function as a list of equations, so that a loop can handle some of them separately.

Values that depend only on the outside of the loop are computed once. A product of a step's rows and such a value, a
weight matrix, is left to the loop, which may have saved it and can compute the weight's gradient in one product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

# Calls that can be replaced by their bodies; those with custom gradients cannot.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr"}
_PRODUCT = (((1,), (0,)), ((), ()))  # the dimension numbers of rows @ matrix


@dataclass(frozen=True, eq=False)
class _Constant:
    value: Any


Atom = int | _Constant  # a number identifies a computed or given value


@dataclass(frozen=True, eq=False)
class _Equation:
    primitive: Any
    params: dict[str, Any]
    inputs: tuple[Atom, ...]
    outputs: tuple[int, ...]

    def bind(self, values: Sequence[Any]) -> Sequence[Any]:
        results = self.primitive.bind(*values, **self.primitive.get_bind_params(self.params))
        return results if self.primitive.multiple_results else [results]


@dataclass(frozen=True)
class Product:
    """``rows @ weight``; ``weight`` is an index into the results of `Equations.before`."""

    weight: int
    shape: tuple[int, ...]
    dtype: Any


class Equations:
    """A function of values from outside the loop and of values that change in every iteration.

    products: the equations that the loop may handle separately.
    """

    def __init__(self, function: Callable[..., list[Any]], outside: Sequence[Any], changing: Sequence[Any], rows: int):
        """Traces ``function(outside, changing)`` and finds the products with ``rows`` rows."""
        closed = jax.make_jaxpr(function)(list(outside), list(changing))
        self._count = 0
        self._equations: list[_Equation] = []
        self._shapes: dict[int, Any] = {}
        given: list[Atom] = [self._fresh(variable.aval) for variable in closed.jaxpr.invars]
        self._results = self._inline(closed.jaxpr, closed.consts, given)
        self._outside, self._changing = given[: len(outside)], given[len(outside) :]

        varying = {atom for atom in self._changing if isinstance(atom, int)}
        for equation in self._equations:
            if varying.intersection(a for a in equation.inputs if isinstance(a, int)):
                varying.update(equation.outputs)
        self._once = [e for e in self._equations if not varying.intersection(e.outputs)]
        self._always = [e for e in self._equations if varying.intersection(e.outputs)]
        used = [a for e in self._always for a in e.inputs] + self._results
        self._border = list(dict.fromkeys(a for a in used if isinstance(a, int) and a not in varying))
        self._position = {atom: i for i, atom in enumerate(self._border)}
        self._is_product = {
            id(e): i for i, e in enumerate(e for e in self._always if self._is_row_product(e, varying, rows))
        }
        self.products = [self._product(e) for e in self._always if id(e) in self._is_product]
        others = {a for e in self._always if id(e) not in self._is_product for a in e.inputs} | set(self._results)
        others.update(e.inputs[0] for e in self._always if id(e) in self._is_product)
        self.only_in_products = [atom not in others for atom in self._border]

    def before(self, outside: Sequence[Any]) -> list[Any]:
        """The values from outside that iterations need, computed once."""
        values: dict[Atom, Any] = dict(zip(self._outside, outside, strict=True))
        for equation in self._once:
            values.update(
                zip(equation.outputs, equation.bind([_read(a, values) for a in equation.inputs]), strict=True)
            )
        return [values[atom] for atom in self._border]

    def run(
        self, border: Sequence[Any], changing: Sequence[Any], product: Callable[..., Any] | None = None
    ) -> list[Any]:
        """The function's results. ``product(i, rows, weight)`` computes product number i, if it is given."""
        values: dict[Atom, Any] = dict(zip((*self._border, *self._changing), (*border, *changing), strict=True))
        for equation in self._always:
            inputs = [_read(atom, values) for atom in equation.inputs]
            number = self._is_product.get(id(equation))
            if number is None or product is None:
                results = equation.bind(inputs)
            else:
                results = [product(number, inputs[0], inputs[1])]
            values.update(zip(equation.outputs, results, strict=True))
        return [_read(atom, values) for atom in self._results]

    def _fresh(self, aval: Any) -> int:
        self._count += 1
        self._shapes[self._count] = aval
        return self._count

    def _inline(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[Atom]) -> list[Atom]:
        """Appends the equations of ``jaxpr``, including those of functions that it calls; returns its results."""
        names: dict[Any, Atom] = dict(zip(jaxpr.invars, given, strict=True))
        names.update((variable, _Constant(value)) for variable, value in zip(jaxpr.constvars, consts, strict=True))

        def atom(variable: Any) -> Atom:
            return _Constant(variable.val) if isinstance(variable, core.Literal) else names[variable]

        for equation in jaxpr.eqns:
            inputs = tuple(atom(variable) for variable in equation.invars)
            if equation.primitive.name in _CALLS:
                inner = equation.params[_CALLS[equation.primitive.name]]
                results: Sequence[Atom] = self._inline(inner.jaxpr, inner.consts, inputs)
            else:
                outputs = tuple(self._fresh(variable.aval) for variable in equation.outvars)
                self._equations.append(_Equation(equation.primitive, equation.params, inputs, outputs))
                results = outputs
            names.update(zip(equation.outvars, results, strict=True))
        return [atom(variable) for variable in jaxpr.outvars]

    def _is_row_product(self, equation: _Equation, changing: set[int], rows: int) -> bool:
        if equation.primitive.name != "dot_general":
            return False
        left, right = equation.inputs
        if isinstance(left, _Constant) or isinstance(right, _Constant):
            return False
        if left not in changing or right not in self._position:
            return False
        numbers = tuple(tuple(map(tuple, part)) for part in equation.params["dimension_numbers"])
        a, b, out = self._shapes[left], self._shapes[right], self._shapes[equation.outputs[0]]
        return numbers == _PRODUCT and a.ndim == b.ndim == 2 and a.shape[0] == rows and a.dtype == b.dtype == out.dtype

    def _product(self, equation: _Equation) -> Product:
        (_, weight), out = equation.inputs, self._shapes[equation.outputs[0]]
        assert not isinstance(weight, _Constant), "see _is_row_product"
        return Product(self._position[weight], out.shape, out.dtype)


def _read(atom: Atom, values: dict[Atom, Any]) -> Any:
    return atom.value if isinstance(atom, _Constant) else values[atom]
