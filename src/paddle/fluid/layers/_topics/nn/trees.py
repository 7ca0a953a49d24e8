"""Layers on trees, and on samples with tags."""

from __future__ import annotations

from typing import Any

from paddle.fluid.data_feeder import check_variable_and_dtype
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers._topics.core.append import append_outputs, require_floating
from refluid.ir import Variable

__all__ = ["filter_by_instag", "tree_conv"]


def tree_conv(
    nodes_vector: Variable,
    edge_set: Variable,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Convolves each node of a tree with the nodes below it, down to ``max_depth``.

    Args:
      nodes_vector: [batch, nodes, features].
      edge_set: [batch, edges, 2], pairs of a parent and a child, which are counted from 1; pairs of zeros fill up.

    Returns:
      [batch, nodes, output_size, num_filters].
    """
    require_floating("tree_conv", nodes_vector=nodes_vector)
    check_variable_and_dtype(edge_set, "edge_set", ("int32",), "tree_conv")
    helper = LayerHelper("tree_conv", **locals())
    dtype = nodes_vector.dtype
    weight = helper.create_parameter(helper.param_attr, [nodes_vector.shape[2], 3, output_size, num_filters], dtype)
    out = helper.create_variable_for_type_inference(dtype)
    inputs = {"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": weight}
    helper.append_op(type="tree_conv", inputs=inputs, outputs={"Out": out}, attrs={"max_depth": max_depth})
    if helper.kwargs["bias_attr"] is not False:
        out = helper.append_bias_op(out)
    return helper.append_activation(out)


def filter_by_instag(
    ins: Variable, ins_tag: Variable, filter_tag: Variable, is_lod: bool, out_val_if_empty: int = 0
) -> list[Variable]:
    """Keeps the samples that have one of the wanted tags.

    Args:
      ins: samples, each a sequence if ``is_lod``, else a row.
      ins_tag: the tags of each sample, a sequence.
      filter_tag: the tags that are wanted.
      out_val_if_empty: what the single row holds that is returned if no sample is kept.

    Returns:
      The samples that are kept, and a weight for each of them: 1, or 0 if there is none.
    """
    helper = LayerHelper("filter_by_instag")
    inputs = {"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag}
    attrs = {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    made = append_outputs(helper, inputs, {"Out": ins.dtype, "LossWeight": "float32", "IndexMap": "int64"}, attrs)
    return [made["Out"], made["LossWeight"]]
