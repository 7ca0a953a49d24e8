"""Reshaping and reordering dims."""

from __future__ import annotations

from typing import Any

from paddle.fluid.data_feeder import check_type, check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import NUMBERS, without_gradient
from paddle.fluid.layers._topics.core.integer_arguments import Integers, pass_integers
from refluid.ir import Variable

__all__ = ["flatten", "reshape", "squeeze", "transpose", "unsqueeze"]


def _append_with_xshape(
    helper: LayerHelper, type: str, x: Variable, attrs: dict[str, Any], inputs: Any = None, out: Any = None
) -> Variable:
    """Appends one of the ops that also output x's original shape."""
    if out is None:
        out = helper.create_variable_for_type_inference(x.dtype)
    outputs = {"Out": out, "XShape": helper.create_variable_for_type_inference(x.dtype)}
    helper.append_op(type=type, inputs={"X": x, **(inputs or {})}, outputs=outputs, attrs=attrs)
    return out


def reshape(
    x: Variable,
    shape: Integers,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """Reshapes x.

    Args:
      shape: the dims; 0 copies x's dim, one -1 is inferred, a variable is read when the program runs.
      actual_shape: a variable that overrides ``shape`` when the program runs.
      act: an activation to apply to the result.
      inplace: return x itself.
    """
    helper = LayerHelper("reshape2", act=act, name=name)
    check_variable_and_dtype(x, "x", NUMBERS, "reshape")
    check_type(actual_shape, "actual_shape", (Variable, type(None)), "reshape")
    inputs, dims = pass_integers(helper, "shape", shape, "Shape", "ShapeTensor")
    if dims is not None:
        _check_shape(x, dims, bool(inputs))
    if actual_shape is not None and not inputs:
        inputs = {"Shape": without_gradient(actual_shape)}
    out = _append_with_xshape(helper, "reshape2", x, {"shape": dims}, inputs, x if inplace else None)
    return helper.append_activation(out)


def _check_shape(x: Variable, dims: list[int], has_variables: bool) -> None:
    if not dims:
        raise ValueError("reshape: shape must have at least one dim")
    if dims.count(-1) > 1 and not has_variables:
        raise ValueError(f"reshape: at most one dim of shape {dims} may be -1")
    for i, dim in enumerate(dims):
        if dim < -1:
            raise ValueError(f"reshape: dim {i} of shape {dims} must be positive, 0 or -1")
        if dim == 0 and i >= len(x.shape):
            raise ValueError(f"reshape: dim {i} of shape {dims} is 0, but x has only {len(x.shape)} dims")


def transpose(x: Variable, perm: list[int], name: str | None = None) -> Variable:
    """Permutes the dims of x into the order ``perm``."""
    check_type(x, "x", Variable, "transpose")
    check_type(perm, "perm", (list, tuple), "transpose")
    if len(perm) != len(x.shape):
        raise ValueError(f"transpose: perm {list(perm)} must contain each of the {len(x.shape)} dims of x once")
    for axis in perm:
        if axis >= len(x.shape):
            raise ValueError(f"transpose: perm {list(perm)} contains dim {axis}, but x has only {len(x.shape)} dims")
    return _append_with_xshape(LayerHelper("transpose", name=name), "transpose2", x, {"axis": list(perm)})


def squeeze(input: Variable, axes: list[int], name: str | None = None) -> Variable:
    """Removes the dims of size 1 listed in ``axes``, or all of them if it is empty."""
    check_type(input, "input", Variable, "squeeze")
    check_type(axes, "axes", (list, tuple), "squeeze")
    return _append_with_xshape(LayerHelper("squeeze", name=name), "squeeze2", input, {"axes": list(axes)})


def unsqueeze(input: Variable, axes: int | Integers, name: str | None = None) -> Variable:
    """Inserts dims of size 1 at ``axes``: an integer, a variable, or a list of both."""
    check_type(input, "input", Variable, "unsqueeze")
    check_type(axes, "axes", (int, list, tuple, Variable), "unsqueeze")
    helper = LayerHelper("unsqueeze2", name=name)
    axes = [axes] if isinstance(axes, int) else axes
    inputs, known = pass_integers(helper, "axes", axes, "AxesTensor", "AxesTensorList")
    return _append_with_xshape(helper, "unsqueeze2", input, {} if inputs else {"axes": known}, inputs)


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """Flattens x into a matrix: dims before ``axis`` become rows, the others columns."""
    check_type(x, "x", Variable, "flatten")
    if not isinstance(axis, int) or not 0 <= axis <= len(x.shape):
        raise ValueError(f"flatten: axis must be an integer from 0 to {len(x.shape)}, not {axis!r}")
    return _append_with_xshape(LayerHelper("flatten", name=name), "flatten2", x, {"axis": axis})
