"""Gathering and scattering by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.data_feeder import check_type
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import (
    append_output,
    append_single_op,
    input_or_attr,
    require_integer,
    without_gradient,
)
from refluid.ir import Variable

__all__ = [
    "gather",
    "gather_nd",
    "hash",
    "multiplex",
    "one_hot",
    "scatter",
    "scatter_nd",
    "scatter_nd_add",
    "shard_index",
    "where",
]


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """Gathers rows by ``index``.

    Args:
      overwrite: the gradient of a row gathered repeatedly is the last one; False adds them up.
    """
    check_type(input, "input", Variable, "gather")
    require_integer("gather", index=index)
    attrs = {"overwrite": overwrite}
    return append_single_op("gather", {"X": input, "Index": index}, {"Out": input.dtype}, attrs)["Out"]


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """Gathers elements or slices at the coordinates in the last dim of ``index``."""
    check_type(input, "input", Variable, "gather_nd")
    require_integer("gather_nd", index=index)
    return append_single_op("gather_nd", {"X": input, "Index": index}, {"Out": input.dtype}, name=name)["Out"]


def scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Variable:
    """Replaces the rows ``index`` of the input by ``updates``.

    Args:
      overwrite: the last update of a repeated row wins; False sums the updates.
    """
    check_type(input, "input", Variable, "scatter")
    check_type(updates, "updates", Variable, "scatter")
    require_integer("scatter", index=index)
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return append_single_op("scatter", inputs, {"Out": input.dtype}, {"overwrite": overwrite}, name)["Out"]


def scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """Adds ``updates`` to the elements or slices at the coordinates in the last dim of ``index``."""
    check_type(ref, "ref", Variable, "scatter_nd_add")
    check_type(updates, "updates", Variable, "scatter_nd_add")
    require_integer("scatter_nd_add", index=index)
    if ref.dtype != updates.dtype:
        raise ValueError(f"scatter_nd_add: ref is {ref.dtype.name}, but updates are {updates.dtype.name}")
    inputs = {"X": ref, "Index": index, "Updates": updates}
    return append_single_op("scatter_nd_add", inputs, {"Out": ref.dtype}, name=name)["Out"]


def scatter_nd(index: Variable, updates: Variable, shape: Sequence[int], name: str | None = None) -> Variable:
    """Adds ``updates`` to zeros of the given shape, at the coordinates in the last dim of ``index``."""
    from paddle.fluid.layers._topics.tensor.create import zeros

    return scatter_nd_add(zeros(shape, updates.dtype), index, updates, name)


def where(condition: Variable) -> Variable:
    """Returns the coordinates of the true elements, one per row."""
    check_type(condition, "condition", Variable, "where")
    return append_single_op("where_index", {"Condition": condition}, {"Out": "int64"})["Out"]


def multiplex(inputs: Sequence[Variable], index: Variable) -> Variable:
    """Builds a tensor whose row i is row i of ``inputs[index[i]]``."""
    check_type(inputs, "inputs", (list, tuple), "multiplex")
    if len(inputs) < 2:
        raise ValueError("multiplex: inputs must hold at least two variables")
    for variable in inputs:
        check_type(variable, "inputs", Variable, "multiplex")
    require_integer("multiplex", index=index)
    return append_output(LayerHelper("multiplex"), {"X": inputs, "Ids": index}, inputs[0].dtype)


def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """One-hot encodes ids of shape [..., 1] into rows of length ``depth``.

    Args:
      allow_out_of_range: encode an id out of range as zeros instead of raising an error.
    """
    check_type(depth, "depth", (int, Variable), "one_hot")
    return without_gradient(encode("one_hot", input, depth, allow_out_of_range))


def encode(op_type: str, input: Variable, depth: Any, allow_out_of_range: bool) -> Variable:
    """One-hot encodes ids with op ``op_type``."""
    require_integer("one_hot", input=input)
    inputs, attrs = input_or_attr(depth, "depth_tensor", "depth")
    for variable in inputs.values():
        without_gradient(variable)
    attrs["allow_out_of_range"] = allow_out_of_range
    return append_single_op(op_type, {"X": input, **inputs}, {"Out": "float32"}, attrs)["Out"]


def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Variable:
    """Renumbers ids relative to the start of this shard, and replaces the ids of other shards.

    Args:
      index_num: the total number of ids in all shards.
      ignore_value: replaces the ids of other shards.
    """
    require_integer("shard_index", input=input)
    if not 0 <= shard_id < nshards:
        raise ValueError(f"shard_index: shard_id {shard_id} must be in [0, {nshards})")
    attrs = {"index_num": index_num, "nshards": nshards, "shard_id": shard_id, "ignore_value": ignore_value}
    return append_single_op("shard_index", {"X": input}, {"Out": input.dtype}, attrs)["Out"]


def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Hashes each row of integers to ``num_hash`` numbers in [0, hash_size) with xxHash."""
    require_integer("hash", input=input)
    attrs = {"num_hash": num_hash, "mod_by": hash_size}
    return without_gradient(append_single_op("hash", {"X": input}, {"Out": input.dtype}, attrs, name)["Out"])
