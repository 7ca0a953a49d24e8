"""Sequences sorted by length and processed step by step: the layers DynamicRNN is built on."""

from __future__ import annotations

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_output, append_single_op
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
    return append_output(helper, {"RankTable": rank_table}, "int64", op_type="max_sequence_len")


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
    return append_single_op("array_to_lod_tensor", {"X": x, "RankTable": table}, {"Out": x.dtype})["Out"]


def shrink_memory(x, i, table) -> Variable:
    """Keeps the first rows of ``x``, one for each sequence of ``table`` longer than ``i``."""
    inputs = {"X": x, "I": i, "RankTable": table}
    return append_single_op("shrink_memory", inputs, {"Out": x.dtype}, op_type="shrink_rnn_memory")["Out"]


def reorder_lod_tensor_by_rank(x, rank_table) -> Variable:
    """Reorders the sequences of ``x``, or its rows if it has no LoD, like ``rank_table``."""
    check_type(x, "x", Variable, "reorder_lod_tensor_by_rank")
    if not isinstance(rank_table, Variable) or rank_table.type != VarType.LOD_RANK_TABLE:
        raise TypeError("reorder_lod_tensor_by_rank: rank_table must come from lod_rank_table")
    return append_single_op("reorder_lod_tensor_by_rank", {"X": x, "RankTable": rank_table}, {"Out": x.dtype})["Out"]
