"""Embedding lookups, and layers for sparse gradients and click counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import (
    FLOATING,
    append_output,
    append_single_op,
    require_floating,
    require_integer,
)
from refluid.ir import Variable, VarType

__all__ = [
    "add_position_encoding",
    "continuous_value_model",
    "embedding",
    "get_tensor_from_selected_rows",
    "merge_selected_rows",
]


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Looks up rows of a trainable table by ids of shape [..., 1].

    Args:
      size: the number of rows and columns of the table.
      is_sparse: produce a sparse gradient that holds only the rows that were looked up.
      is_distributed: store the table on parameter servers.
      padding_idx: an id whose row is all zeros; a negative one counts from the end.
    """
    return look_up("lookup_table", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def look_up(
    op_type: str,
    input: Variable,
    size: Sequence[int],
    is_sparse: bool,
    is_distributed: bool,
    padding_idx: int | None,
    param_attr: Any,
    dtype: Any,
) -> Variable:
    """Creates a table and looks up ``input`` in it with op ``op_type``."""
    require_integer("embedding", input=input)
    check_dtype(dtype, "dtype", FLOATING, "embedding")
    if len(size) != 2:
        raise ValueError(f"embedding: size must be [rows, columns], not {list(size)}")
    if padding_idx is None:
        padding_idx = -1
    elif not -size[0] <= padding_idx < size[0]:
        raise ValueError(f"embedding: padding_idx {padding_idx} is out of range for a table with {size[0]} rows")
    elif padding_idx < 0:
        padding_idx += size[0]
    helper = LayerHelper("embedding", input=input, param_attr=param_attr)
    table = helper.create_parameter(attr=helper.param_attr, shape=size, dtype=dtype, is_bias=False)
    attrs = {
        "is_sparse": is_sparse,
        "is_distributed": is_distributed,
        "remote_prefetch": is_sparse and not is_distributed,
        "padding_idx": padding_idx,
    }
    return append_output(helper, {"Ids": input, "W": table}, dtype, attrs, op_type)


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Merges duplicate rows of selected rows by adding their values."""
    return append_single_op("merge_selected_rows", {"X": x}, {"Out": x.dtype}, name=name)["Out"]


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Returns the values of selected rows as a tensor."""
    if not isinstance(x, Variable) or x.type != VarType.SELECTED_ROWS:
        raise TypeError("get_tensor_from_selected_rows: x must be a variable of type SELECTED_ROWS")
    return append_single_op("get_tensor_from_selected_rows", {"X": x}, {"Out": x.dtype}, name=name)["Out"]


def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Converts the show and click counts in the first two columns of ``input`` into features, or drops them.

    Args:
      cvm: the show and click counts of each sample, which become the gradient of the two columns.
      use_cvm: keep the two columns.
    """
    require_floating("continuous_value_model", input=input)
    helper = LayerHelper("cvm", input=input)
    out = helper.create_variable(dtype=input.dtype)
    helper.append_op(type="cvm", inputs={"X": [input], "CVM": [cvm]}, outputs={"Y": [out]}, attrs={"use_cvm": use_cvm})
    return out


def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Variable:
    """Computes alpha * input + beta * a sinusoidal position encoding."""
    require_floating("add_position_encoding", input=input)
    attrs = {"alpha": alpha, "beta": beta}
    return append_single_op("add_position_encoding", {"X": input}, {"Out": input.dtype}, attrs, name)["Out"]
