"""Products, sums, scaling and clipping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output, input_or_attr
from refluid.ir import Variable, unique_name

__all__ = [
    "addmm",
    "bmm",
    "clip",
    "clip_by_norm",
    "cross",
    "dist",
    "dot",
    "kron",
    "matmul",
    "mul",
    "scale",
    "sum",
    "sums",
    "trace",
]


def mul(x, y, x_num_col_dims=1, y_num_col_dims=1, name=None):
    """Multiplies x and y as matrices, each flattened at its ``num_col_dims``."""
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return _append("mul", {"X": x, "Y": y}, attrs, name)


def matmul(x, y, transpose_x=False, transpose_y=False, alpha=1.0, name=None):
    """Multiplies matrices in the last two dims, optionally transposed, and scales the product by ``alpha``."""
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": float(alpha)}
    return _append("matmul", {"X": x, "Y": y}, attrs, name)


def bmm(x, y, name=None):
    """Multiplies two batches of matrices."""
    return _append("bmm", {"X": x, "Y": y}, {}, name)


def addmm(input, x, y, alpha=1.0, beta=1.0, name=None):
    """Computes beta * input + alpha * x @ y."""
    return _append("addmm", {"Input": input, "X": x, "Y": y}, {"Alpha": float(alpha), "Beta": float(beta)}, name)


def dot(x, y, name=None):
    """Computes the inner product of two vectors, or of corresponding rows."""
    return _append("dot", {"X": x, "Y": y}, {}, name)


def cross(input, other, dim=None):
    """Computes the cross product along ``dim``, by default the first dim of size 3."""
    return _append("cross", {"X": input, "Y": other}, {} if dim is None else {"dim": dim}, None)


def kron(x, y, name=None):
    """Computes the Kronecker product."""
    return _append("kron", {"X": x, "Y": y}, {}, name)


def trace(input, offset=0, dim1=0, dim2=1, name=None):
    """Sums a diagonal of the matrices in ``dim1`` and ``dim2``."""
    return _append("trace", {"Input": input}, {"offset": offset, "dim1": dim1, "dim2": dim2}, name)


def dist(x, y, p=2):
    """Computes the p-norm of x - y."""
    return _append("dist", {"X": x, "Y": y}, {"p": float(p)}, None)


def sum(x):
    """Sums a list of variables."""
    variables = list(x) if isinstance(x, list | tuple) else [x]
    for variable in variables:
        check_type(variable, "x", Variable, "sum")
    return append_output(LayerHelper("sum"), {"X": variables}, variables[0].dtype)


def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """Sums tensors of the same shape, into ``out`` if given."""
    variables = list(input) if isinstance(input, list | tuple) else [input]
    helper = LayerHelper("sum", input=variables)
    for variable in variables:
        check_type(variable, "input", Variable, "sums")
    if out is None:
        out = helper.create_variable_for_type_inference(helper.input_dtype())
    check_type(out, "out", Variable, "sums")
    helper.append_op(type="sum", inputs={"X": variables}, outputs={"Out": [out]}, attrs={"use_mkldnn": False})
    return out


def scale(x, scale=1.0, bias=0.0, bias_after_scale=True, act=None, name=None):
    """Computes scale * x + bias, or scale * (x + bias) without ``bias_after_scale``.

    Args:
      scale: a number, or a variable of one element.
    """
    factor, attrs = input_or_attr(scale if isinstance(scale, Variable) else float(scale), "ScaleTensor", "scale")
    attrs |= {"bias": float(bias), "bias_after_scale": bias_after_scale}
    return _append("scale", {"X": x, **factor}, attrs, name, act)


def clip(x, min, max, name=None):
    """Clips x to [min, max]; ``name`` is the name of the result."""
    return _clip("clip", x, {"min": float(min), "max": float(max)}, name)


def clip_by_norm(x, max_norm, name=None):
    """Scales x down to the Euclidean norm ``max_norm`` if it is longer; ``name`` is the name of the result."""
    return _clip("clip_by_norm", x, {"max_norm": float(max_norm)}, name)


def _clip(type: str, x: Variable, attrs: dict[str, float], name: str | None) -> Variable:
    check_type(x, "x", Variable, type)
    helper = LayerHelper(type, name=name)
    out = helper.create_variable(name=name or unique_name.generate(f"{helper.name}.tmp"), type=x.type, dtype=x.dtype)
    helper.append_op(type=type, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def _append(
    type: str, inputs: dict[str, Variable], attrs: dict[str, Any], name: str | None, act: Any = None
) -> Variable:
    for slot, variable in inputs.items():
        check_type(variable, slot.lower(), Variable, type)
    helper = LayerHelper(type, name=name, act=act)
    return helper.append_activation(append_output(helper, inputs, next(iter(inputs.values())).dtype, attrs))
