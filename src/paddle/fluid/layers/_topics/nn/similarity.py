"""Similarities and products of two inputs."""

from __future__ import annotations

from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_single_op, require_floating
from refluid.ir import Variable

__all__ = ["bilinear_tensor_product", "cos_sim", "fsp_matrix", "similarity_focus"]


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """Computes the cosine similarity of the rows of X and Y; a single row of Y is broadcast."""
    require_floating("cos_sim", X=X, Y=Y)
    outputs = {"Out": X.dtype, "XNorm": X.dtype, "YNorm": X.dtype}
    return append_single_op("cos_sim", {"X": X, "Y": Y}, outputs)["Out"]


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: Any = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """Computes ``size`` bilinear forms of x and y, each with a trainable matrix, plus a bias."""
    require_floating("bilinear_tensor_product", x=x, y=y)
    helper = LayerHelper("bilinear_tensor_product", **locals())
    weight = helper.create_parameter(attr=helper.param_attr, shape=[size, x.shape[1], y.shape[1]], dtype=x.dtype)
    out = helper.create_variable_for_type_inference(x.dtype)
    bias = helper.create_parameter(attr=helper.bias_attr, shape=[1, size], dtype=x.dtype, is_bias=True)
    inputs = {"X": x, "Y": y, "Weight": weight, "Bias": bias}
    helper.append_op(type="bilinear_tensor_product", inputs=inputs, outputs={"Out": out})
    return helper.append_activation(out)


def similarity_focus(input: Variable, axis: int, indexes: list[int], name: str | None = None) -> Variable:
    """Marks the largest entries of the slices ``indexes`` along ``axis``, at most one per row and column."""
    require_floating("similarity_focus", input=input)
    if axis not in (1, 2, 3):
        raise ValueError(f"similarity_focus: axis must be 1, 2 or 3, not {axis}")
    if not isinstance(indexes, list) or not indexes:
        raise ValueError("similarity_focus: indexes must be a list of at least one index")
    attrs = {"axis": axis, "indexes": indexes}
    return append_single_op("similarity_focus", {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Computes the products of all channels of x with all channels of y, averaged over the image (the FSP matrix)."""
    require_floating("fsp_matrix", x=x, y=y)
    return append_single_op("fsp_matrix", {"X": x, "Y": y}, {"Out": x.dtype}, op_type="fsp")["Out"]
