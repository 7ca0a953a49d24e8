"""Comparisons and logical operations."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_single_op, named_layer
from refluid.ir import Variable

_COMPARISONS = {
    "less_equal": "x <= y",
    "greater_than": "x > y",
    "greater_equal": "x >= y",
    "equal": "x == y",
    "not_equal": "x != y",
}
_LOGIC = {"logical_and": "x and y", "logical_or": "x or y", "logical_xor": "x xor y"}
_TESTS = {
    "has_inf": ("isinf", "Returns whether any element is infinite."),
    "has_nan": ("isnan", "Returns whether any element is NaN."),
    "isfinite": ("isfinite", "Returns whether all elements are finite."),
}

__all__ = ["allclose", "less_than", "logical_not"]
__all__ += list(_COMPARISONS | _LOGIC | _TESTS)  # pyright: ignore[reportUnsupportedDunderAll]


def less_than(x, y, force_cpu=None, cond=None):
    """Computes x < y element-wise.

    Args:
      force_cpu: ignored.
      cond: the variable that receives the result; a new one by default.
    """
    return _compare("less_than", x, y, cond, {} if force_cpu is None else {"force_cpu": force_cpu})


def _comparison(type: str, meaning: str) -> Callable[..., Variable]:
    def layer(x, y, cond=None):
        return _compare(type, x, y, cond, {})

    return named_layer(layer, type, f"Computes {meaning} element-wise, into ``cond`` if given.")


def _compare(type: str, x: Variable, y: Variable, cond: Variable | None, attrs: dict[str, Any]) -> Variable:
    check_type(x, "x", Variable, type)
    check_type(y, "y", Variable, type)
    check_type(cond, "cond", (Variable, NoneType), type)
    helper = LayerHelper(type)
    if cond is None:
        cond = helper.create_variable_for_type_inference("bool", stop_gradient=True)
    helper.append_op(type=type, inputs={"X": x, "Y": y}, outputs={"Out": cond}, attrs=attrs)
    return cond


def _logic(type: str, meaning: str) -> Callable[..., Variable]:
    def layer(x, y, out=None, name=None):
        return _combine(type, {"X": x, "Y": y}, out, name)

    return named_layer(layer, type, f"Computes {meaning} of booleans element-wise, into ``out`` if given.")


def logical_not(x, out=None, name=None):
    """Computes not x of booleans element-wise, into ``out`` if given."""
    return _combine("logical_not", {"X": x}, out, name)


def _combine(type: str, inputs: dict[str, Variable], out: Variable | None, name: str | None) -> Variable:
    for slot, variable in inputs.items():
        check_variable_and_dtype(variable, slot.lower(), ("bool",), type)
    check_type(out, "out", (Variable, NoneType), type)
    helper = LayerHelper(type, name=name)
    if out is None:
        out = helper.create_variable_for_type_inference("bool")
    helper.append_op(type=type, inputs=inputs, outputs={"Out": out})
    return out


def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Returns whether |input - other| <= atol + rtol * |other| for all elements.

    Args:
      equal_nan: whether two NaNs are equal.
    """
    for argument, variable in (("input", input), ("other", other)):
        check_variable_and_dtype(variable, argument, ("float32", "float64"), "allclose")
    check_type(equal_nan, "equal_nan", bool, "allclose")
    attrs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return append_single_op("allclose", {"Input": input, "Other": other}, {"Out": "bool"}, attrs, name)["Out"]


def _test(layer_name: str, type: str, meaning: str) -> Callable[..., Variable]:
    def layer(x):
        check_type(x, "x", Variable, layer_name)
        return append_single_op(type, {"X": x}, {"Out": "bool"})["Out"]

    return named_layer(layer, layer_name, meaning)


globals().update({type: _comparison(type, meaning) for type, meaning in _COMPARISONS.items()})
globals().update({type: _logic(type, meaning) for type, meaning in _LOGIC.items()})
globals().update({name: _test(name, type, meaning) for name, (type, meaning) in _TESTS.items()})
