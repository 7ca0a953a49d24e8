"""Layers for search and recommendation, and a few that fuse or take apart other layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from paddle.fluid import layers
from paddle.fluid.data_feeder import check_dtype, check_type, check_variable_and_dtype
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers import tree_conv
from paddle.fluid.layers._topics.core.append import append_output, append_outputs, append_single_op, without_gradient
from paddle.fluid.layers._topics.detection.suppression import multiclass_nms2
from paddle.fluid.layers._topics.tensor.random import carried_seed
from paddle.fluid.param_attr import ParamAttr
from refluid.ir import Variable, as_dtype

__all__ = [
    "fused_elemwise_activation",
    "fused_embedding_seq_pool",
    "match_matrix_tensor",
    "multiclass_nms2",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "search_pyramid_hash",
    "sequence_topk_avg_pooling",
    "shuffle_batch",
    "tdm_child",
    "tdm_sampler",
    "tree_conv",
    "var_conv_2d",
]


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: str | Sequence[str],
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """Computes ``binary(x, unary(y))`` or ``unary(binary(x, y))`` in one op.

    Args:
      functor_list: two functions, as a list or with a comma between: the one that is applied last comes first. One is
        elementwise_add or elementwise_mul, the other scale, relu, tanh or sigmoid.
      axis: of the elementwise function.
      scale: of the function ``scale``.
    """
    functors = functor_list.split(",") if isinstance(functor_list, str) else functor_list
    if not isinstance(functors, list | tuple) or len(functors) != 2:
        raise ValueError(f"fused_elemwise_activation: functor_list must name two functions, not {functor_list!r}")
    attrs = {
        "axis": axis,
        "scale": scale,
        "save_intermediate_out": save_intermediate_out,
        "functor_list": list(functors),
    }
    outputs = {"Out": x.dtype, "IntermediateOut": x.dtype}
    return append_single_op("fused_elemwise_activation", {"X": x, "Y": y}, outputs, attrs)["Out"]


def fused_embedding_seq_pool(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: str = "float32",
) -> Variable:
    """Sums the embeddings of each sequence of ids, without making the embeddings one by one.

    Args:
      padding_idx: an id whose embedding counts as zeros; a negative one counts from the end of the table.
    """
    check_variable_and_dtype(input, "input", ("int64",), "fused_embedding_seq_pool")
    helper = LayerHelper("fused_embedding_seq_pool", input=input, param_attr=param_attr)
    table = helper.create_parameter(attr=helper.param_attr, shape=list(size), dtype=dtype)
    padding_idx = -1 if padding_idx is None else padding_idx if padding_idx >= 0 else size[0] + padding_idx
    attrs = {"is_sparse": is_sparse, "combiner": combiner, "padding_idx": padding_idx}
    return append_output(helper, {"Ids": input, "W": table}, dtype, attrs)


def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: Any = None,
    param_attr: Any = None,
    dtype: str = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Scores each row of a sequence of x with each row of the same sequence of y, by ``channel_num`` bilinear forms.

    Returns:
      For each pair of sequences the scores, as single numbers; and memory of real Fluid, which is not filled here.
    """
    for argument, variable in (("x", x), ("y", y)):
        check_variable_and_dtype(variable, argument, ("float32",), "match_matrix_tensor")
    helper = LayerHelper("match_matrix_tensor", act=act, param_attr=param_attr, name=name)
    weight = helper.create_parameter(helper.param_attr, [x.shape[-1], channel_num, y.shape[-1]], dtype)
    out = helper.create_variable_for_type_inference(dtype)
    scratch = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    inputs = {"X": x, "Y": y, "W": weight}
    attrs = {"dim_t": channel_num}
    helper.append_op(type="match_matrix_tensor", inputs=inputs, outputs={"Out": out, "Tmp": scratch}, attrs=attrs)
    return helper.append_activation(out), scratch


def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: Sequence[int], channel_num: int
) -> Variable:
    """Averages the largest numbers of each row of images of different sizes.

    Args:
      input: images of ``channel_num`` channels as sequences of single numbers, such as `match_matrix_tensor` returns.
      row, col: sequences that are as long as each image has rows and columns.
      topks: how many of the largest numbers are averaged; one column of the result for each, and for each channel.
    """
    helper = LayerHelper("sequence_topk_avg_pooling")
    inputs = {"X": input, "ROW": row, "COLUMN": col}
    attrs = {"topks": list(topks), "channel_num": channel_num}
    return append_outputs(helper, inputs, {"Out": input.dtype, "pos": "int32"}, attrs)["Out"]


def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    param_attr: Any = None,
    act: Any = None,
    dtype: str = "float32",
    name: str | None = None,
) -> Variable:
    """Convolves images of different sizes; see `sequence_topk_avg_pooling` for their form."""
    helper = LayerHelper("var_conv_2d", act=act, param_attr=param_attr, name=name)
    high, wide = _pair(filter_size, "filter_size")
    down, across = _pair(stride, "stride")
    weight = helper.create_parameter(helper.param_attr, [output_channel, input_channel * high * wide], dtype)
    out, scratch = (helper.create_variable_for_type_inference(dtype) for _ in range(2))
    helper.append_op(
        type="var_conv_2d",
        inputs={"X": input, "ROW": row, "COLUMN": col, "W": weight},
        outputs={"Out": out, "Col": scratch},
        attrs={
            "InputChannel": input_channel,
            "OutputChannel": output_channel,
            "KernelH": high,
            "KernelW": wide,
            "StrideH": down,
            "StrideW": across,
        },
    )
    return helper.append_activation(out)


def _pair(value: int | Sequence[int], argument: str) -> tuple[int, int]:
    found = (value, value) if isinstance(value, int) else tuple(value)
    if len(found) != 2:
        raise ValueError(f"var_conv_2d: {argument} must be one number or two, not {value}")
    return found


def search_pyramid_hash(
    input: Variable,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: bool,
    use_filter: bool,
    white_list_len: int,
    black_list_len: int,
    seed: int,
    lr: float,
    param_attr: Any = None,
    param_attr_wl: Any = None,
    param_attr_bl: Any = None,
    name: str | None = None,
    distribute_update_vars: Sequence[str] | None = None,
    dtype: str = "float32",
) -> Variable:
    """Embeds all pieces of 2 to ``pyramid_layer`` ids of each sequence, by hashing them into one vector.

    As in real Fluid the vector is not trained by optimizers: gradients stop at it.

    Args:
      num_emb: the width of an embedding, a multiple of ``rand_len``.
      space_len: how many places the hash tells apart; the vector is ``rand_len`` longer.
      drop_out_percent: the share of pieces that is dropped while training.
      use_filter: not supported; lists of wanted and unwanted pieces are Bloom filters of Fluid.
    """
    check_variable_and_dtype(input, "input", ("int32",), "search_pyramid_hash")
    helper = LayerHelper("search_pyramid_hash", param_attr=param_attr, name=name)
    shape = [space_len + rand_len, 1]
    inputs = {"X": input, "W": without_gradient(helper.create_parameter(ParamAttr._to_attr(param_attr), shape, dtype))}
    lists = {"WhiteList": (param_attr_wl, white_list_len), "BlackList": (param_attr_bl, black_list_len)}
    for slot, (attr, length) in lists.items():
        if length > 0:
            inputs[slot] = without_gradient(helper.create_parameter(ParamAttr._to_attr(attr), [length, 1], dtype))
    attrs = {
        "num_emb": num_emb,
        "space_len": space_len,
        "pyramid_layer": pyramid_layer,
        "rand_len": rand_len,
        "drop_out_percent": drop_out_percent,
        "is_training": int(is_training),
        "use_filter": use_filter,
        "white_list_len": white_list_len,
        "black_list_len": black_list_len,
        "seed": seed,
        "lr": lr,
        "distribute_update_vars": ",".join(distribute_update_vars or ()),
    }
    outputs = {"Out": dtype, "DropPos": dtype, "X_Temp_Out": dtype}
    return append_outputs(helper, inputs, outputs, attrs, "pyramid_hash")["Out"]


def shuffle_batch(x: Variable, seed: int | Variable | None = None) -> Variable:
    """Shuffles the rows of a batch; gradients find their way back.

    Args:
      seed: where the sequence of shuffles begins, a number or an int64 variable.
    """
    helper = LayerHelper("shuffle_batch")
    out = helper.create_variable_for_type_inference(x.dtype)
    order = helper.create_variable_for_type_inference("int64")
    seed, attrs = carried_seed(helper, seed)
    outputs = {"Out": out, "ShuffleIdx": order, "SeedOut": seed}
    helper.append_op(type="shuffle_batch", inputs={"X": x, "Seed": seed}, outputs=outputs, attrs=attrs)
    return out


def partial_concat(input: Variable | Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Puts the same columns of several matrices side by side, from ``start_index`` on; all columns by default."""
    return _of_columns("partial_concat", input, start_index, length)


def partial_sum(input: Variable | Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Adds the same columns of several matrices up, from ``start_index`` on; all columns by default."""
    return _of_columns("partial_sum", input, start_index, length)


def _of_columns(type: str, input: Variable | Sequence[Variable], start_index: int, length: int) -> Variable:
    inputs: list[Any] = list(input) if isinstance(input, list | tuple) else [input]
    for each in inputs:
        check_variable_and_dtype(each, "input", ("float32", "float64", "int32", "int64"), type)
    attrs = {"start_index": start_index, "length": length}
    return append_single_op(type, {"X": inputs}, {"Out": inputs[0].dtype}, attrs)["Out"]


def tdm_child(
    x: Variable, node_nums: int, child_nums: int, param_attr: Any = None, dtype: str = "int32"
) -> tuple[Variable, Variable]:
    """Returns the children of nodes in a tree of items, and for each child whether it is an item.

    Args:
      x: numbers of nodes.
      param_attr: the tree: for each of ``node_nums`` nodes its item, layer, parent and children; 0 stands for none.
    """
    helper = LayerHelper("tdm_child")
    check_dtype(dtype, "dtype", ("int32", "int64"), "tdm_child")
    shape = [node_nums, 3 + child_nums]
    tree = helper.create_parameter(ParamAttr._to_attr(param_attr), shape, dtype, default_initializer=Constant(0))
    inputs = {"X": x, "TreeInfo": without_gradient(tree)}
    attrs = {"child_nums": child_nums, "dtype": as_dtype(dtype)}
    made = append_outputs(helper, inputs, {"Child": dtype, "LeafMask": dtype}, attrs)
    return made["Child"], made["LeafMask"]


def tdm_sampler(
    x: Variable,
    neg_samples_num_list: Sequence[int],
    layer_node_num_list: Sequence[int],
    leaf_node_num: int,
    tree_travel_attr: Any = None,
    tree_layer_attr: Any = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: str = "int32",
    dtype: str = "int32",
) -> tuple[Any, Any, Any]:
    """Draws, for each item and layer of a tree, the item's node in that layer and other nodes of it.

    Args:
      x: numbers of items.
      neg_samples_num_list: how many other nodes are drawn in each layer.
      layer_node_num_list: how many nodes each layer has.
      leaf_node_num: the number of items.
      tree_travel_attr: the path of each item, a node for each layer, 0 where it has ended.
      tree_layer_attr: the nodes of all layers, one layer after the other.
      output_list: return a list with a variable for each layer instead of one variable.

    Returns:
      Nodes, labels (1 for nodes of the item) and masks (0 where the path of an item has ended).
    """
    counts, sizes = list(neg_samples_num_list), list(layer_node_num_list)
    if len(counts) != len(sizes):
        raise ValueError(f"tdm_sampler: there are {len(counts)} numbers of samples for {len(sizes)} layers")
    for depth, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        if count >= size:
            raise ValueError(f"tdm_sampler: {count} other nodes cannot be drawn from layer {depth}, which has {size}")
    helper = LayerHelper("tdm_sampler")
    travel = helper.create_parameter(
        ParamAttr._to_attr(tree_travel_attr), [leaf_node_num, len(sizes)], tree_dtype, default_initializer=Constant(0)
    )
    layer = helper.create_parameter(
        ParamAttr._to_attr(tree_layer_attr), [sum(sizes), 1], tree_dtype, default_initializer=Constant(0)
    )
    attrs = {
        "neg_samples_num_list": counts,
        "output_positive": output_positive,
        "layer_offset_lod": [0, *accumulate(sizes)],
        "seed": seed,
        "dtype": as_dtype(dtype),
    }
    inputs = {"X": x, "Travel": travel, "Layer": layer}
    made = append_outputs(helper, inputs, {"Out": dtype, "Labels": dtype, "Mask": dtype}, attrs)
    found = (without_gradient(made["Out"]), without_gradient(made["Labels"]), without_gradient(made["Mask"]))
    if not output_list:
        return found
    widths = [count + int(output_positive) for count in counts]
    lists: tuple[list[Variable], list[Variable], list[Variable]] = ([], [], [])
    for start, width in zip(accumulate([0, *widths[:-1]]), widths, strict=True):
        pieces = [layers.slice(each, axes=[1], starts=[start], ends=[start + width]) for each in found]
        for several, piece in zip(lists, pieces, strict=True):
            several.append(without_gradient(layers.reshape(piece, [-1, width, 1])))
    return lists


def rank_attention(
    input: Variable,
    rank_offset: Variable,
    rank_param_shape: Sequence[int],
    rank_param_attr: Any,
    max_rank: int = 3,
) -> Variable:
    """Sums rows of the samples that were shown with a sample, each times the matrix for the ranks of both.

    Args:
      rank_offset: for each sample its rank, counted from 1, and ``max_rank`` pairs of the rank and the row of a sample
        that it was shown with; a rank of 0 means that there is none.
      rank_param_shape: [max_rank * max_rank * width of ``input``, width of the result].
    """
    check_type(rank_offset, "rank_offset", Variable, "rank_attention")
    helper = LayerHelper("rank_attention")
    weight = helper.create_parameter(ParamAttr._to_attr(rank_param_attr), list(rank_param_shape), input.dtype)
    weight.stop_gradient = False
    inputs = {"X": input, "RankOffset": rank_offset, "RankParam": weight}
    return append_output(helper, inputs, input.dtype, {"MaxRank": max_rank})
