"""Ops that run Python code: print and py_func."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax.numpy as jnp
import numpy as np

from refluid.ops.core.infer import described_like
from refluid.ops.core.registry import op
from refluid.ops.core.services import Host
from refluid.ops.host import callables

# How often each caller has printed, for first_n.
_printed: WeakKeyDictionary[object, int] = WeakKeyDictionary()


def _printer(slot: str, silent_in: str) -> Callable[..., Any]:
    """The rule that writes the value in ``slot`` to standard output and passes it on."""

    def rule(
        *values,
        first_n=-1,
        message="",
        summarize=20,
        print_tensor_name=True,
        print_tensor_type=True,
        print_tensor_shape=True,
        print_phase="BOTH",
        host: Host,
    ):
        value = values[-1]
        if print_phase.upper() == silent_in:
            return value
        times = _printed[host.caller] = _printed.get(host.caller, 0) + 1
        if times <= first_n or first_n <= 0:
            array = np.asarray(value)
            lines = [
                (True, f"{int(time.time())}\t{message}\tThe place is:{type(host.place).__name__}"),
                (print_tensor_name, f"Tensor[{host.names(slot)[0]}]"),
                (print_tensor_shape, f"\tshape: [{_listed(array.shape)}]"),
                (print_tensor_type, f"\tdtype: {_letter(array.dtype)}"),
                (True, f"\tdata: {_numbers(array, summarize)}"),
            ]
            print("\n".join(line for wanted, line in lines if wanted), flush=True)
        return value

    return rule


def _listed(items: Iterable[Any]) -> str:
    return "".join(f"{item}," for item in items)


def _letter(dtype: np.dtype) -> str:
    """Real Fluid prints C++'s letters for types."""
    return {"bool": "b", "int64": "l"}.get(dtype.name, dtype.char)


def _numbers(array: np.ndarray, summarize: int) -> str:
    shown = array.ravel()[:summarize] if summarize >= 0 else array.ravel()
    return _listed(f"{value:g}" if array.dtype.kind == "f" else int(value) for value in shown)


op("print", inputs="In", outputs="Out", host=True, infer=described_like("In"))(_printer("In", silent_in="BACKWARD"))
op("print_grad", inputs="In? Out@GRAD", outputs="In@GRAD", grad=None, host=True)(
    _printer("Out@GRAD", silent_in="FORWARD")
)


def _call(number: int, arguments: Sequence[Any], expected: int) -> list[Any]:
    """Calls a registered function on these arrays and returns its results as arrays."""
    results = callables.registered(number)(*(None if a is None else np.asarray(a) for a in arguments))
    if not expected:  # a function without outputs may return anything
        return []
    if len(results) != expected:
        raise ValueError(f"the Python function returned {len(results)} values, but {expected} are expected")
    return [None if result is None else jnp.asarray(result) for result in results]


@op("py_func", inputs="X*?", outputs="Out*", host=True, lod=None)
def py_func(xs, *, forward_callable_id=0, backward_callable_id=-1, backward_skip_vars=(), host: Host):
    """Calls a Python function on the xs."""
    return _call(forward_callable_id, xs, len(host.names("Out")))


@op("py_func_grad", inputs="X* Out* Out@GRAD*", outputs="X@GRAD*", grad=None, host=True, lod=None)
def py_func_grad(xs, outs, grads, *, forward_callable_id=0, backward_callable_id=-1, backward_skip_vars=(), host: Host):
    """Calls the backward function on the xs, the outs and their gradients, without the skipped variables."""
    names = [*host.names("X"), *host.names("Out")]
    given = [value for name, value in zip(names, [*xs, *outs], strict=True) if name not in backward_skip_vars]
    return _call(backward_callable_id, [*given, *grads], len(xs))
