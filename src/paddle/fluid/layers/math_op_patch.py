"""Operators on variables: ``x + 1``, ``x < y``, ``-x``, ``x[1:]``. Each appends the same ops as Fluid.

A number next to + - * / becomes one ``scale`` op; otherwise it becomes a constant tensor, with one element on the
right-hand side and with the variable's shape on the left-hand side.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from paddle.fluid.layers._topics.tensor.subscript import subscript
from refluid.ir import Block, Variable, VarType, as_dtype, unique_name

__all__ = ["monkey_patch_variable"]

_INTEGERS = (VarType.UINT8, VarType.INT8, VarType.INT16, VarType.INT32, VarType.INT64)

# Method -> op type, whether the variable is the right operand, and the equivalent scale and bias for a number.
_ARITHMETIC: dict[str, tuple[str, bool, Callable[[float], tuple[float, float]] | None]] = {
    "__add__": ("elementwise_add", False, lambda number: (1.0, number)),
    "__radd__": ("elementwise_add", False, lambda number: (1.0, number)),
    "__sub__": ("elementwise_sub", False, lambda number: (1.0, -number)),
    "__rsub__": ("elementwise_sub", True, lambda number: (-1.0, number)),
    "__mul__": ("elementwise_mul", False, lambda number: (number, 0.0)),
    "__rmul__": ("elementwise_mul", False, lambda number: (number, 0.0)),
    "__truediv__": ("elementwise_div", False, lambda number: (1.0 / number, 0.0)),
    "__rtruediv__": ("elementwise_div", True, None),
    "__pow__": ("elementwise_pow", False, None),
    "__rpow__": ("elementwise_pow", True, None),
    "__floordiv__": ("elementwise_floordiv", False, None),
    "__rfloordiv__": ("elementwise_floordiv", True, None),
    "__mod__": ("elementwise_mod", False, None),
    "__rmod__": ("elementwise_mod", True, None),
}
_COMPARISONS = {
    "__eq__": "equal",
    "__ne__": "not_equal",
    "__lt__": "less_than",
    "__le__": "less_equal",
    "__gt__": "greater_than",
    "__ge__": "greater_equal",
}


def monkey_patch_variable() -> None:
    """Defines the operators of variables. ``==`` appends an ``equal`` op; hashing remains by identity."""
    for method, (type, reflected, as_scale) in _ARITHMETIC.items():
        _install(method, _arithmetic(type, reflected, as_scale))
    for method, type in _COMPARISONS.items():
        _install(method, _comparison(type))
    _install("__neg__", lambda self: _scale(self, -1.0, 0.0))
    _install("__getitem__", subscript)
    _install("astype", astype)
    # NumPy scalars on the left defer to the variable on the right.
    Variable.__array_ufunc__ = None  # type: ignore[attr-defined]
    Variable.__iter__ = None  # type: ignore[attr-defined]


def _install(name: str, method: Callable[..., Any]) -> None:
    method.__name__ = name
    setattr(Variable, name, method)


def astype(self: Variable, dtype: Any) -> Variable:
    """Returns this variable cast to another dtype."""
    attrs = {"in_dtype": self.dtype, "out_dtype": as_dtype(dtype)}
    return _append("cast", _block(self), {"X": self}, as_dtype(dtype), attrs)


def _arithmetic(type: str, reflected: bool, as_scale: Callable[[float], tuple[float, float]] | None):
    def method(self: Variable, other: Any) -> Any:
        whole = self.dtype in _INTEGERS
        if isinstance(other, float | int) and as_scale is not None and not (whole and type == "elementwise_div"):
            if whole and other != int(other):
                raise TypeError(f"{other} is not an integer, but {self.name} is {self.dtype}: cast the variable first")
            return _scale(self, *as_scale(float(other)))
        return _binary(type, self, other, reflected, self.dtype)

    return method


def _comparison(type: str):
    def method(self: Variable, other: Any) -> Any:
        return _binary(type, self, other, False, VarType.BOOL)

    return method


def _scale(variable: Variable, scale: float, bias: float) -> Variable:
    return _append("scale", _block(variable), {"X": variable}, variable.dtype, {"scale": scale, "bias": bias})


def _binary(type: str, variable: Variable, other: Any, reflected: bool, out_dtype: VarType) -> Any:
    if not isinstance(other, Variable):
        if not _is_number(other):
            return NotImplemented
        other = _filled_like(variable, float(other)) if reflected else _constant(variable, float(other), [1])
    if other.dtype != variable.dtype:
        other = astype(other, variable.dtype)
    x, y = (other, variable) if reflected else (variable, other)
    axis = 0 if y.shape[:1] == (-1,) else -1
    return _append(type, _block(variable), {"X": x, "Y": y}, out_dtype, {"axis": axis})


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | np.generic) or (isinstance(value, np.ndarray) and value.size == 1)


def _filled_like(variable: Variable, value: float) -> Variable:
    """Returns a constant of ``variable``'s shape; an unknown batch size is read while running."""
    if -1 not in variable.shape:
        return _constant(variable, value, list(variable.shape))
    batch = variable.shape.index(-1)
    shape = [1 if dim == -1 and i != batch else dim for i, dim in enumerate(variable.shape)]
    attrs = {"shape": shape, "value": value, "input_dim_idx": batch, "output_dim_idx": batch}
    return _append_constant("fill_constant_batch_size_like", variable, {"Input": variable}, attrs)


def _constant(variable: Variable, value: float, shape: list[int]) -> Variable:
    return _append_constant("fill_constant", variable, {}, {"shape": shape, "value": value, "force_cpu": False})


def _append_constant(type: str, variable: Variable, inputs: dict[str, Any], attrs: dict[str, Any]) -> Variable:
    out = _append(type, _block(variable), inputs, variable.dtype, {"dtype": variable.dtype, **attrs})
    out.stop_gradient = True
    return out


def _block(variable: Variable) -> Block:
    return variable.block.program.current_block()


def _append(type: str, block: Block, inputs: dict[str, Any], dtype: VarType, attrs: dict[str, Any]) -> Variable:
    out = block.create_var(name=unique_name.generate("tmp"), dtype=dtype)
    block.append_op(type=type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out
