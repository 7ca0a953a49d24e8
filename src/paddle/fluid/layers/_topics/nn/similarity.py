"""Layers that compare two inputs, or the parts of one."""

from __future__ import annotations

from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_single_op, require_floating
from refluid.ir import Variable

__all__ = ["bilinear_tensor_product", "cos_sim", "fsp_matrix", "similarity_focus"]


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """The cosine between rows of X and of Y; a Y of one row meets every row of X."""
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
    """``size`` bilinear forms of x and y, each with a trained matrix, plus a bias."""
    require_floating("bilinear_tensor_product", x=x, y=y)
    helper = LayerHelper("bilinear_tensor_product", **locals())
    weight = helper.create_parameter(attr=helper.param_attr, shape=[size, x.shape[1], y.shape[1]], dtype=x.dtype)
    out = helper.create_variable_for_type_inference(x.dtype)
    inputs = {"X": [x], "Y": [y], "Weight": [weight]}
    if helper.bias_attr:
        bias = helper.create_parameter(attr=helper.bias_attr, shape=[1, size], dtype=x.dtype, is_bias=True)
        inputs["Bias"] = [bias]
    helper.append_op(type="bilinear_tensor_product", inputs=inputs, outputs={"Out": [out]})
    return helper.append_activation(out)


def similarity_focus(input: Variable, axis: int, indexes: list[int], name: str | None = None) -> Variable:
    """Marks the largest entries of the slices ``indexes`` along ``axis``, no two in a row or column."""
    require_floating("similarity_focus", input=input)
    if axis not in (1, 2, 3):
        raise ValueError(f"similarity_focus: axis must be 1, 2 or 3, not {axis}")
    if not isinstance(indexes, list) or not indexes:
        raise ValueError("similarity_focus: indexes must be a list of at least one index")
    attrs = {"axis": axis, "indexes": indexes}
    return append_single_op("similarity_focus", {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """The products of every channel of x with every channel of y, averaged over the image: the flow between layers."""
    require_floating("fsp_matrix", x=x, y=y)
    return append_single_op("fsp_matrix", {"X": x, "Y": y}, {"Out": x.dtype}, op_type="fsp")["Out"]
