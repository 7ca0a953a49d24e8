"""Sequences sorted by length and processed step by step: the layers DynamicRNN is built on."""

from __future__ import annotations

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from refluid.ir import Variable, VarType, unique_name

__all__ = [
    "array_to_lod_tensor",
    "lod_rank_table",
    "lod_tensor_to_array",
    "max_sequence_len",
    "reorder_lod_tensor_by_rank",
    "shrink_memory",
]


def lod_rank_table(x, level=0) -> Variable:
    """Sorts the sequences of one LoD level of ``x`` by length, longest first; the sort is stable."""
    check_type(x, "x", Variable, "lod_rank_table")
    helper = LayerHelper("lod_rank_table")
    table = helper.create_variable(type=VarType.LOD_RANK_TABLE, name=unique_name.generate("lod_rank_table"))
    table.stop_gradient = True
    helper.append_op(type="lod_rank_table", inputs={"X": [x]}, outputs={"Out": [table]}, attrs={"level": level})
    return table


def max_sequence_len(rank_table) -> Variable:
    """Returns the length of the longest sequence of a rank table as an int64 of shape [1]."""
    helper = LayerHelper("max_seqence_len")  # Fluid's spelling, which variable names contain
    out = helper.create_variable_for_type_inference("int64")
    helper.append_op(type="max_sequence_len", inputs={"RankTable": [rank_table]}, outputs={"Out": [out]})
    return out


def lod_tensor_to_array(x, table) -> Variable:
    """Returns a tensor array with one tensor per time step, whose rows follow the order of ``table``."""
    check_type(x, "x", Variable, "lod_tensor_to_array")
    helper = LayerHelper("lod_tensor_to_array")
    array = helper.create_variable(
        name=unique_name.generate("lod_tensor_to_array"), type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype
    )
    helper.append_op(type="lod_tensor_to_array", inputs={"X": [x], "RankTable": [table]}, outputs={"Out": [array]})
    return array


def array_to_lod_tensor(x, table) -> Variable:
    """The inverse of `lod_tensor_to_array`."""
    helper = LayerHelper("array_to_lod_tensor")
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(type="array_to_lod_tensor", inputs={"X": [x], "RankTable": [table]}, outputs={"Out": [out]})
    return out


def shrink_memory(x, i, table) -> Variable:
    """Keeps the first rows of ``x``, one for each sequence of ``table`` longer than ``i``."""
    helper = LayerHelper("shrink_memory")
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        type="shrink_rnn_memory", inputs={"X": [x], "I": [i], "RankTable": [table]}, outputs={"Out": [out]}
    )
    return out


def reorder_lod_tensor_by_rank(x, rank_table) -> Variable:
    """Reorders the sequences of ``x``, or its rows if it has no LoD, like ``rank_table``."""
    check_type(x, "x", Variable, "reorder_lod_tensor_by_rank")
    if not isinstance(rank_table, Variable) or rank_table.type != VarType.LOD_RANK_TABLE:
        raise TypeError("reorder_lod_tensor_by_rank: rank_table must come from lod_rank_table")
    helper = LayerHelper("reorder_lod_tensor_by_rank")
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        type="reorder_lod_tensor_by_rank", inputs={"X": [x], "RankTable": [rank_table]}, outputs={"Out": [out]}
    )
    return out
