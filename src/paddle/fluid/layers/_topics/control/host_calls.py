"""Layers that run Python on the host: Print and py_func."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output
from refluid.ir import Variable
from refluid.ops.host import callables
from refluid.tensors import LoDTensor

__all__ = ["Print", "py_func"]


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = -1,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Returns its input and prints it to standard output when the program runs; the gradient likewise.

    Args:
      first_n: how many times to print; -1 means always.
      message: text to print first.
      summarize: how many elements to print; -1 means all.
      print_phase: "forward", "backward" or "both".
    """
    check_type(input, "input", Variable, "Print")
    if print_phase.lower() not in ("forward", "backward", "both"):
        raise ValueError(f"Print: print_phase must be forward, backward or both, not {print_phase!r}")
    attrs = {
        "first_n": first_n,
        "summarize": summarize,
        "message": message or "",
        "print_tensor_name": print_tensor_name,
        "print_tensor_type": print_tensor_type,
        "print_tensor_shape": print_tensor_shape,
        "print_tensor_lod": print_tensor_lod,
        "print_phase": print_phase.upper(),
    }
    return append_output(LayerHelper("print_" + input.name), {"In": input}, input.dtype, attrs, "print")


def py_func(
    func: Callable[..., Any],
    x: Variable | Sequence[Variable] | None,
    out: Variable | Sequence[Variable] | None,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Variable | Sequence[Variable] | None = None,
) -> Any:
    """Calls a Python function on tensors while the program runs, and stores its results in ``out``.

    Args:
      func: takes LoDTensors, which ``np.array`` converts, and returns arrays.
      out: existing variables with shape and dtype.
      backward_func: takes x, out and the gradients of out, and returns the gradients of x. Without it, no gradient
        flows.
      skip_vars_in_backward_input: variables of x and out that are not passed to ``backward_func``.
    """
    inputs, outputs = _as_list("x", x), _as_list("out", out)
    for function in (func, backward_func):
        if function is not None and not callable(function):
            raise TypeError(f"py_func: {function!r} is not a function")
    for variable in outputs:
        if not variable.shape:
            raise ValueError(f"py_func: {variable.name} needs a shape, because it cannot be inferred from the function")
    skipped = _as_list("skip_vars_in_backward_input", skip_vars_in_backward_input) if backward_func else []
    names = {variable.name for variable in (*inputs, *outputs)}
    for variable in skipped:
        if variable.name not in names:
            raise ValueError(
                f"py_func: skip_vars_in_backward_input has {variable.name}, which is neither in x nor in out"
            )
    attrs = {
        "forward_callable_id": callables.register(_on_tensors(func)),
        "backward_callable_id": callables.register(_on_tensors(backward_func)) if backward_func else -1,
        "backward_skip_vars": sorted({variable.name for variable in skipped}),
    }
    LayerHelper("py_func").append_op(type="py_func", inputs={"X": inputs}, outputs={"Out": outputs}, attrs=attrs)
    if backward_func is None:
        for variable in outputs:
            variable.stop_gradient = True
    return out


def _as_list(name: str, given: Any) -> list[Variable]:
    check_type(given, name, (list, tuple, Variable, type(None)), "py_func")
    variables = [] if given is None else [given] if isinstance(given, Variable) else list(given)
    for variable in variables:
        check_type(variable, name, Variable, "py_func")
    return variables


def _on_tensors(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Wraps ``function``, which maps LoDTensors to one value or several, to map arrays to a list of arrays."""
    no_parameters = _has_no_parameters(function)

    def call(*arrays: Any) -> list[Any]:
        tensors = [None if array is None else LoDTensor(array) for array in arrays]
        results = function() if no_parameters else function(*tensors)
        results = results if isinstance(results, list | tuple) else (results,)
        return [None if result is None else np.asarray(result) for result in results]

    call.function = function  # pyright: ignore
    return call


def _has_no_parameters(function: Callable[..., Any]) -> bool:
    try:
        return not inspect.signature(function).parameters
    except ValueError:  # some functions written in C have no signature
        return False


def _registered_func(idx: int) -> Callable[..., Any]:
    """Returns the function that programs refer to by ``idx``."""
    return callables.registered(idx).function  # pyright: ignore


py_func.registered_func = _registered_func  # pyright: ignore
py_func.registered_func_num = callables.count  # pyright: ignore
