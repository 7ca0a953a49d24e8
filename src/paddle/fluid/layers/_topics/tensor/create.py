"""Creating tensors: constants, copies, ranges and parameters; and shape queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.fluid.data_feeder import check_dtype, check_type, check_variable_and_dtype
from paddle.fluid.initializer import Constant, Initializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import NUMBERS, append_output, append_single_op, without_gradient
from paddle.fluid.param_attr import ParamAttr
from refluid.ir import Parameter, Variable, VarType, as_dtype, as_numpy

__all__ = [
    "assign",
    "autoincreased_step_counter",
    "cast",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "diag",
    "diag_embed",
    "eye",
    "fill_constant",
    "fill_constant_batch_size_like",
    "increment",
    "is_empty",
    "linspace",
    "ones",
    "ones_like",
    "range",
    "rank",
    "shape",
    "size",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]

Shape = Variable | Sequence[int | Variable]


def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """Creates a variable that layers can write to with ``out=``."""
    helper = LayerHelper("create_tensor", name=name)
    return helper.create_variable(name=helper.name, dtype=dtype, persistable=persistable)


def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: ParamAttr | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Parameter:
    """Creates a parameter.

    Args:
      is_bias: initialize with zeros by default instead of Xavier.
      default_initializer: used unless ``attr`` has an initializer.
    """
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_parameter")
    check_type(attr, "attr", (type(None), ParamAttr), "create_parameter")
    check_type(default_initializer, "default_initializer", (type(None), Initializer), "create_parameter")
    helper = LayerHelper("create_parameter", name=name)
    attr = ParamAttr(name=name) if attr is None else attr
    return helper.create_parameter(attr, list(shape), as_dtype(dtype), is_bias, default_initializer)


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """Creates a variable in block 0 that the startup program fills with ``value``."""
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_global_var")
    helper = LayerHelper("global_var", name=name)
    variable = helper.create_global_variable(
        persistable=persistable, dtype=dtype, shape=list(shape), name=name, stop_gradient=True
    )
    helper.set_variable_initializer(variable, Constant(value=float(value), force_cpu=force_cpu))
    return variable


def cast(x: Variable, dtype: Any) -> Variable:
    """Casts x to another dtype."""
    check_variable_and_dtype(x, "x", ("bool", *NUMBERS, "uint8"), "cast")
    dtype = as_dtype(dtype)
    check_dtype(dtype, "dtype", ("bool", *NUMBERS, "int8", "uint8"), "cast")
    attrs = {"in_dtype": int(x.dtype), "out_dtype": int(dtype)}
    return append_single_op("cast", {"X": x}, {"Out": dtype}, attrs)["Out"]


_VALUES = {
    VarType.BOOL: "bool_values",
    VarType.FP32: "fp32_values",
    VarType.INT32: "int32_values",
    VarType.INT64: "int64_values",
}


def assign(input: Variable | np.ndarray, output: Variable | None = None) -> Variable:
    """Copies a variable, or an array, into ``output`` or into a new variable."""
    check_type(input, "input", (Variable, np.ndarray), "assign")
    helper = LayerHelper("assign")
    dtype = input.dtype if isinstance(input, Variable) else as_dtype(input.dtype)
    if not isinstance(input, Variable) and dtype not in _VALUES:
        raise TypeError(f"assign: an array must be bool, float32, int32 or int64, not {input.dtype}")
    if output is None:
        output = helper.create_variable_for_type_inference(dtype)
    if isinstance(input, Variable):
        helper.append_op(type="assign", inputs={"X": [input]}, outputs={"Out": [output]})
        return output
    attrs = {"dtype": int(dtype), "shape": list(input.shape), _VALUES[dtype]: input.ravel().tolist()}
    helper.append_op(type="assign_value", outputs={"Out": [output]}, attrs=attrs)
    return output


def _constant_attrs(value: float, dtype: VarType) -> dict[str, Any]:
    """Returns a constant as a number and as text, which represents every int64 exactly."""
    text = str(int(value)) if dtype in (VarType.INT32, VarType.INT64) else str(float(value))
    return {"value": float(value), "str_value": text}


def fill_constant(
    shape: Shape, dtype: Any, value: float | Variable, force_cpu: bool = False, out: Variable | None = None
) -> Variable:
    """Creates a tensor filled with one value.

    Args:
      shape: a variable, or a list of integers and variables.
      value: a number, or a variable of one element.
      force_cpu: ignored.
      out: the variable to write to.
    """
    dtype = as_dtype(dtype)
    check_dtype(dtype, "dtype", ("bool", *NUMBERS), "fill_constant")
    if out is not None and out.dtype != dtype:
        raise TypeError(f"fill_constant: out has dtype {out.dtype.name}, expected {dtype.name}")
    helper = LayerHelper("fill_constant")
    inputs: dict[str, Any] = {"ValueTensor": value if isinstance(value, Variable) else None}
    attrs: dict[str, Any] = {"force_cpu": force_cpu, "dtype": int(dtype)}
    if not isinstance(value, Variable):
        attrs.update(_constant_attrs(value, dtype))
    _pass_shape(shape, inputs, attrs)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type="fill_constant", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return without_gradient(out)


def _pass_shape(shape: Shape, inputs: dict[str, Any], attrs: dict[str, Any]) -> None:
    check_type(shape, "shape", (Variable, list, tuple), "fill_constant")
    if isinstance(shape, Variable):
        inputs["ShapeTensor"] = [_as_size(shape)]
        return
    if not len(shape):
        raise ValueError("fill_constant: shape must have at least one dim")
    attrs["shape"] = [-1 if isinstance(dim, Variable) else int(dim) for dim in shape]
    if any(isinstance(dim, Variable) for dim in shape):
        inputs["ShapeTensorList"] = [
            _as_size(dim) if isinstance(dim, Variable) else fill_constant([1], "int32", dim, force_cpu=True)
            for dim in shape
        ]


def _as_size(variable: Variable) -> Variable:
    """Casts a variable that holds sizes to the int32 that ops expect."""
    without_gradient(variable)
    if variable.dtype not in (VarType.INT32, VarType.INT64):
        raise TypeError(f"fill_constant: a shape must be int32 or int64, but {variable.name} is {variable.dtype.name}")
    return cast(variable, "int32") if variable.dtype == VarType.INT64 else variable


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """Creates a tensor filled with one value; its dim ``output_dim_idx`` is the input's dim ``input_dim_idx``."""
    check_type(input, "input", Variable, "fill_constant_batch_size_like")
    dtype = as_dtype(dtype)
    attrs = {
        "shape": list(shape),
        "dtype": int(dtype),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "force_cpu": force_cpu,
        **_constant_attrs(value, dtype),
    }
    made = append_single_op("fill_constant_batch_size_like", {"Input": input}, {"Out": dtype}, attrs)
    return without_gradient(made["Out"])


def ones(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """Creates a tensor of ones."""
    check_type(shape, "shape", (list, tuple), "ones")
    if all(isinstance(dim, int) for dim in shape) and math.prod(shape) <= 0:
        raise ValueError(f"ones: the dims of shape {list(shape)} must be positive")
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """Creates a tensor of zeros."""
    check_type(shape, "shape", (list, tuple), "zeros")
    return fill_constant(shape, dtype, 0.0, force_cpu)


def _fill_like(layer: str, type: str, x: Variable, out: Variable | None, attrs: dict[str, Any]) -> Variable:
    check_variable_and_dtype(x, "x", ("bool", *NUMBERS), layer)
    helper = LayerHelper(layer)
    if out is None:
        out = helper.create_variable_for_type_inference(x.dtype)
    check_type(out, "out", Variable, layer)
    helper.append_op(type=type, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Creates zeros with x's shape and dtype."""
    return without_gradient(_fill_like("zeros_like", "fill_zeros_like", x, out, {}))


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Creates ones with x's shape and dtype."""
    return _fill_like("ones_like", "fill_any_like", x, out, {"value": 1.0})


def range(start: float | Variable, end: float | Variable, step: float | Variable, dtype: Any) -> Variable:
    """Creates the vector start, start + step, ..., up to but excluding end; each argument may be a variable."""
    helper = LayerHelper("range")
    dtype = as_dtype(dtype)
    given = {"Start": start, "End": end, "Step": step}
    inputs = {slot: _as_tensor("range", slot.lower(), value, dtype) for slot, value in given.items()}
    return without_gradient(append_output(helper, inputs, dtype))


def _as_tensor(layer: str, name: str, given: float | Variable, dtype: VarType) -> Variable:
    check_type(given, name, (float, int, np.number, Variable), layer)
    if not isinstance(given, Variable):
        return fill_constant([1], dtype, given)
    return given if given.dtype == dtype else cast(given, dtype)


def linspace(start: float | Variable, stop: float | Variable, num: int | Variable, dtype: Any) -> Variable:
    """Creates a vector of ``num`` evenly spaced numbers from start to stop."""
    helper = LayerHelper("linspace")
    dtype = as_dtype(dtype)
    inputs = {
        "Start": _as_tensor("linspace", "start", start, dtype),
        "Stop": _as_tensor("linspace", "stop", stop, dtype),
        "Num": _as_tensor("linspace", "num", num, VarType.INT32),
    }
    return append_output(helper, inputs, dtype)


def diag(diagonal: Variable | np.ndarray) -> Variable:
    """Creates the square matrix with this diagonal."""
    check_type(diagonal, "diagonal", (Variable, np.ndarray), "diag")
    helper = LayerHelper("diag")
    diagonal = diagonal if isinstance(diagonal, Variable) else assign(diagonal)
    return without_gradient(append_output(helper, {"Diagonal": diagonal}, diagonal.dtype))


def diag_embed(input: Variable | np.ndarray, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Variable:
    """Returns matrices with the last dim of ``input`` on a diagonal and zeros elsewhere.

    Args:
      offset: which diagonal; above the main one if positive, below it if negative.
      dim1, dim2: the dims of the result that are rows and columns of the matrices.
    """
    check_type(input, "input", (Variable, np.ndarray), "diag_embed")
    if not isinstance(input, Variable):
        input = assign(input)
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return append_single_op("diag_embed", {"Input": input}, {"Out": input.dtype}, attrs)["Out"]


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: list[int] | None = None, dtype: Any = "float32"
) -> Variable:
    """Creates a matrix with ones on its diagonal, repeated to ``batch_shape``."""
    from paddle.fluid.layers._topics.tensor.concat import stack

    num_columns = num_rows if num_columns is None else num_columns
    if not isinstance(num_rows, int) or not isinstance(num_columns, int) or num_rows < 0 or num_columns < 0:
        raise TypeError(f"eye: num_rows {num_rows} and num_columns {num_columns} must be non-negative integers")
    if batch_shape is not None and (not isinstance(batch_shape, list) or any(size <= 0 for size in batch_shape)):
        raise TypeError(f"eye: batch_shape must be a list of positive integers, not {batch_shape}")
    attrs = {"num_rows": num_rows, "num_columns": num_columns, "dtype": int(as_dtype(dtype))}
    out = without_gradient(append_single_op("eye", {}, {"Out": dtype}, attrs)["Out"])
    for size in reversed(batch_shape or []):
        out = stack([out] * size, axis=0)
    return out


def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Returns the lower triangle of matrices; elements above ``diagonal`` become zero."""
    return _triangle("tril", input, diagonal, name)


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Returns the upper triangle of matrices; elements below ``diagonal`` become zero."""
    return _triangle("triu", input, diagonal, name)


def _triangle(layer: str, x: Variable, diagonal: int, name: str | None) -> Variable:
    check_type(x, "input", Variable, layer)
    check_type(diagonal, "diagonal", int, layer)
    if len(x.shape) < 2:
        raise ValueError(f"{layer}: input must have at least 2 dims, got shape {list(x.shape)}")
    attrs = {"diagonal": diagonal, "lower": layer == "tril"}
    helper = LayerHelper(layer, name=name)
    out = helper.create_variable(name=helper.name, dtype=x.dtype)
    helper.append_op(type="tril_triu", inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def shape(input: Variable) -> Variable:
    """Returns the shape as an int32 vector."""
    check_type(input, "input", Variable, "shape")
    return append_single_op("shape", {"Input": input}, {"Out": "int32"})["Out"]


def rank(input: Variable) -> Variable:
    """Returns the number of dims."""
    check_type(input, "input", Variable, "rank")
    return assign(np.array(len(input.shape), "int32"))


def size(input: Variable) -> Variable:
    """Returns the number of elements."""
    check_type(input, "input", Variable, "size")
    return append_single_op("size", {"Input": input}, {"Out": "int64"})["Out"]


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Returns whether x has no elements, into ``cond`` if given."""
    check_type(x, "x", Variable, "is_empty")
    check_type(cond, "cond", (Variable, type(None)), "is_empty")
    helper = LayerHelper("is_empty")
    if cond is None:
        cond = helper.create_variable_for_type_inference("bool", stop_gradient=True)
    elif cond.dtype != VarType.BOOL:
        raise TypeError(f"is_empty: cond must be bool, not {as_numpy(cond.dtype).name}")
    helper.append_op(type="is_empty", inputs={"X": [x]}, outputs={"Out": [cond]})
    return cond


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Adds ``value`` to a counter, in place or into a new variable."""
    check_type(x, "x", Variable, "increment")
    helper = LayerHelper("increment")
    out = x if in_place else helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="increment", inputs={"X": [x]}, outputs={"Out": [out]}, attrs={"step": float(value)})
    return out


def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """Creates a persistable counter that starts at ``begin - 1`` and grows by ``step`` at the start of every run."""
    helper = LayerHelper("global_step_counter")
    counter, is_new = helper.create_or_get_global_variable(
        name=counter_name or "@STEP_COUNTER@", dtype="int64", shape=[1], persistable=True, belong_to_optimizer=True
    )
    if is_new:
        helper.set_variable_initializer(counter, Constant(value=begin - 1, force_cpu=True))
        helper.main_program.global_block()._prepend_op(
            type="increment", inputs={"X": [counter]}, outputs={"Out": [counter]}, attrs={"step": float(step)}
        )
        counter.stop_gradient = True
    return counter
