"""Appends operators that call JAX: inputs and results are trees of variables, checked while the program is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from paddle.fluid.layer_helper import LayerHelper
from refluid.errors import OpError
from refluid.ir import Variable, as_numpy
from refluid.ir.source import user_line
from refluid.ops.jax_call import JaxCall

# What unknown dims stand for while a program is built: large and rich in divisors, as for other operators.
_STAND_INS = (10080, 20160)
_ROWS = 4  # of the sequences that show whether a function works row by row


class Inputs:
    """A tree of variables and constants, the arguments of a function.

    Args:
      layer: the name of the layer, for errors.
      title: the name of the function.
      tree: the arguments.
    """

    def __init__(self, layer: str, title: str, tree: Any):
        self.layer, self.title = layer, title
        self._leaves, self._structure = jax.tree.flatten(tree)
        self.variables = [leaf for leaf in self._leaves if isinstance(leaf, Variable)]
        if not self.variables:
            raise self.error("it is given no variable")

    def filled(self, values: Sequence[Any]) -> Any:
        """The tree with values in place of the variables."""
        given = iter(values)
        leaves = [next(given) if isinstance(leaf, Variable) else leaf for leaf in self._leaves]
        return jax.tree.unflatten(self._structure, leaves)

    @property
    def has_doubles(self) -> bool:
        """Whether there are floats of 64 bits, which must not become shorter."""
        return any(as_numpy(variable.dtype) == np.float64 for variable in self.variables)

    @property
    def sizes(self) -> list[int]:
        """What to try for unknown dims, which may have to equal a known one."""
        dims = {dim for variable in self.variables for dim in variable.shape}
        return [*_STAND_INS, *sorted(dims - {-1}, reverse=True)] if -1 in dims else [1]

    def abstract(self, size: int) -> list[Any]:
        """Shapes and dtypes, with ``size`` for unknown dims."""
        return [jax.ShapeDtypeStruct(_sized(v.shape, size), as_numpy(v.dtype)) for v in self.variables]

    def error(self, problem: str, hint: str | None = None) -> OpError:
        """An error with the function, the shapes of its inputs and the user's line."""
        lines = [f"input       {v.name}  {as_numpy(v.dtype)}{list(v.shape)}" for v in self.variables]
        return OpError(self.layer, f"{self.title}: {problem}", lines, [], str(user_line()), hint)

    def explained(self, error: Exception) -> OpError:
        """An error that the function has raised."""
        traced = isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError)
        hint = "its Python code depends on the values of arrays: use jnp.where, jax.lax.cond or a static argument"
        return self.error(str(error).strip().split("\n")[0] or type(error).__name__, hint if traced else None)


def append_call(
    inputs: Inputs,
    helper: LayerHelper,
    call: JaxCall,
    params: Sequence[Variable] = (),
    states: Sequence[Variable] = (),
) -> Any:
    """Appends an operator that runs ``call``; returns a tree of variables.

    Args:
      params, states: what it holds; states are overwritten.

    Raises:
      OpError: the function does not accept inputs of these shapes, or mixes rows of sequences.
    """
    held = [[jax.ShapeDtypeStruct(v.shape, as_numpy(v.dtype)) for v in each] for each in (params, states)]
    results, is_random = _evaluated(inputs, call, held)
    call = replace(call, structure=jax.tree.structure(results))
    has_sequences = any(variable.lod_level for variable in inputs.variables)
    if has_sequences or helper.main_program.current_block().idx:  # the rows of a loop's body may be those of sequences
        call = replace(call, is_row_wise=_works_row_by_row(inputs, call, held))
    if has_sequences and not call.is_row_wise:
        raise inputs.error(
            "it mixes rows, which belong to different sequences here",
            "give it one sequence per row: fluid.layers.sequence_pad(x, pad_value) before it, and "
            "fluid.layers.sequence_unpad after it",
        )
    outputs = [helper.create_variable_for_type_inference(leaf.dtype) for leaf in jax.tree.leaves(results)]
    helper.append_op(
        type="random_jax_call" if is_random else "jax_call",
        inputs={"X": inputs.variables, "Param": list(params), "State": list(states)},
        outputs={"Out": outputs, "StateOut": list(states)},
        attrs={"call": call},
    )
    return jax.tree.unflatten(call.structure, outputs)


def _evaluated(inputs: Inputs, call: JaxCall, held: Sequence[Any]) -> tuple[Any, bool]:
    """The results as shapes and dtypes, and whether the function uses its random key."""

    def run(key: Any, values: Any, params: Any, states: Any) -> Any:
        return call.tree(values, params, states, False, key)

    problem: Exception | None = None
    for size in inputs.sizes:
        try:
            with jax.enable_x64(True):
                trace = jax.make_jaxpr(run, return_shape=True)
                closed, (results, states) = trace(jax.random.key(0), inputs.abstract(size), *held)
        except Exception as error:  # noqa: BLE001 - a function may raise anything
            problem = problem or error
            continue
        for before, after in zip(held[1], states, strict=True):
            if (before.shape, before.dtype) != (after.shape, after.dtype):
                raise inputs.error(f"a state of shape {list(before.shape)} becomes one of {list(after.shape)}")
        _, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
        return results, used[0]
    assert problem is not None
    raise inputs.explained(problem) from problem


def _works_row_by_row(inputs: Inputs, call: JaxCall, held: Sequence[Any]) -> bool:
    """Whether a change of one row changes nothing but that row of the results."""
    random = np.random.RandomState(0)
    params, states = ([_sample(random, each.shape, each.dtype) for each in kind] for kind in held)
    if not any(variable.shape[:1] == (-1,) for variable in inputs.variables):
        return False
    values = [_sample(random, _sized(v.shape, _ROWS), as_numpy(v.dtype)) for v in inputs.variables]
    changed = [value.copy() for value in values]
    for variable, value in zip(inputs.variables, changed, strict=True):
        if variable.shape[:1] == (-1,):
            value[1] = ~value[1] if value.dtype == bool else value[1] + 1
    with jax.enable_x64(True):
        key = jax.random.key(0)
        one, other = (call(each, params, states, False, key) for each in (values, changed))
    same_states = all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    return same_states and all(_differ_in_a_row(a, b) for a, b in zip(one[0], other[0], strict=True))


def _differ_in_a_row(one: Any, other: Any) -> bool:
    if one.ndim == 0 or one.shape[0] != _ROWS:
        return False
    return np.array_equal(np.delete(one, 1, 0), np.delete(other, 1, 0), equal_nan=one.dtype.kind == "f")


def _sample(random: np.random.RandomState, shape: Sequence[int], dtype: Any) -> np.ndarray:
    floating = np.issubdtype(dtype, np.floating) or dtype.kind == "V"  # bfloat16 is none of NumPy's own
    return (random.randn(*shape) if floating else np.zeros(shape)).astype(dtype)


def _sized(shape: Sequence[int], size: int) -> tuple[int, ...]:
    return tuple(size if dim < 0 else dim for dim in shape)
