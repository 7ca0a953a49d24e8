"""JAX functions as layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from refluid.bridges.appending import Inputs, append_call
from refluid.ops.jax_call import JaxCall


def jax_layer(function: Callable[..., Any], *inputs: Any, name: str | None = None, x64: bool | None = None) -> Any:
    """Appends ``function`` to the program as an operator; returns its results as variables.

    >>> def gelu(x):
    ...     return x * jax.scipy.stats.norm.cdf(x)
    >>> hidden = refluid.jax_layer(gelu, fluid.layers.fc(x, 64))

    The function is traced when the program is compiled, with the rest of it, and differentiated by JAX. It may be used
    in the bodies of loops. A parameter named ``key`` receives a jax.random key, which differs in every step and follows
    the program's seed. Inputs with sequences (LoD) are given as rows, to functions that work row by row.

    Args:
      function: a function of arrays that JAX can trace. Without state: what it closes over is constant.
      inputs: variables, or trees of them (dicts, lists, tuples); anything else in a tree is passed on as it is.
      name: what the results are named after; by default the function's name.
      x64: whether the function works with 64-bit values. By default it does if an input is float64; otherwise int64
        inputs arrive as int32, as they would in plain JAX, and an id that does not fit is an error.

    Returns:
      A variable, or a tree of variables in the structure that the function returns.

    Raises:
      OpError: the function cannot be traced with inputs of these shapes.
    """
    title = getattr(function, "__name__", type(function).__name__)
    given = Inputs("jax_layer", title, inputs)
    takes_key = "key" in _parameters(function)

    def call(values: Any, params: Any, states: Any, key: Any, is_test: bool) -> tuple[Any, Any]:
        options = {"key": key} if takes_key else {}
        return function(*given.filled(values), **options), states

    helper = LayerHelper("jax_layer" if title == "<lambda>" else title, name=name)
    return append_call(given, helper, JaxCall(title, call, given.has_doubles if x64 is None else x64))


def _parameters(function: Callable[..., Any]) -> Any:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # of a builtin
        return {}
