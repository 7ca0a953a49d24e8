"""Trees: children and samples of a tree of items (tdm_child, tdm_sampler), and convolutions over syntax trees."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from refluid.ops.core.checks import require_in_range
from refluid.ops.core.dtypes import numpy_dtype
from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.row_wise import sequences_only_in

_ITEM, _CHILDREN = 0, 3  # columns of TreeInfo: item, layer, parent, children


@op(
    "tdm_child",
    inputs="X TreeInfo",
    outputs="Child LeafMask",
    grad=None,
    row_wise=sequences_only_in("X"),
)
def tdm_child(x, tree, *, child_nums, dtype=2):
    """The children of each node, and which of them are items; node 0 is no node and has no children."""
    require_in_range(x, tree.shape[0], slot="X")
    children = tree[x][..., _CHILDREN : _CHILDREN + child_nums]
    has_children = (x != 0) & (children[..., 0] != 0)
    children = jnp.where(has_children[..., None], children, 0)
    is_item = (children != 0) & (tree[children][..., _ITEM] != 0)
    return children.astype(numpy_dtype(dtype)), is_item.astype(numpy_dtype(dtype))


def _infer_samples(inputs: Described, attrs: dict[str, Any]) -> Described:
    width = sum(attrs["neg_samples_num_list"]) + len(attrs["neg_samples_num_list"]) * attrs.get("output_positive", True)
    sample = ShapeDtype((-1, width), numpy_dtype(attrs.get("dtype", 2)))
    return {slot: [sample] for slot in ("Out", "Labels", "Mask")}


@op(
    "tdm_sampler",
    inputs="X Travel Layer",
    outputs="Out Labels Mask",
    grad=None,
    random=True,
    lod=None,
    row_wise=sequences_only_in("X"),
    infer=_infer_samples,
)
def tdm_sampler(x, travel, layer, *, key, neg_samples_num_list, layer_offset_lod, output_positive=True, dtype=2):
    """For each item and layer of the tree the item's node there and other nodes of that layer, none of them twice.

    An item whose path ends before a layer has zeros there, with Mask 0.
    """
    ids, nodes = x.reshape(-1), layer.reshape(-1)
    require_in_range(x, travel.shape[0], slot="X")
    samples, labels = [], []
    for depth, count in enumerate(neg_samples_num_list):
        first, last = layer_offset_lod[depth], layer_offset_lod[depth + 1]
        if count > last - first - 1:
            raise ValueError(f"layer {depth} has {last - first} nodes: {count} other nodes cannot be drawn from it")
        positive = travel[ids, depth]
        places = _distinct(jax.random.fold_in(key, depth), ids.shape[0], count + 1, last - first)
        drawn = nodes[first + places]
        # One more than needed is drawn: the item's node is left out if it is there, else the last one.
        left_out = jnp.where((drawn == positive[:, None]).any(1), (drawn == positive[:, None]).argmax(1), count)
        others = jnp.arange(count)
        drawn = jnp.take_along_axis(drawn, others + (others >= left_out[:, None]), 1)
        columns = jnp.concatenate([positive[:, None], drawn], 1) if output_positive else drawn
        exists = (positive != 0)[:, None]
        samples.append(jnp.where(exists, columns, 0))
        is_positive = jnp.arange(columns.shape[1]) < (1 if output_positive else 0)
        labels.append((exists & is_positive, jnp.broadcast_to(exists, columns.shape)))
    out = jnp.concatenate(samples, 1)
    label, mask = (jnp.concatenate(parts, 1) for parts in zip(*labels, strict=True))
    kind = numpy_dtype(dtype)
    return out.astype(kind), label.astype(kind), mask.astype(kind)


def _distinct(key: Any, rows: int, count: int, bound: int) -> Any:
    """[rows, count] numbers in [0, bound), different ones in each row."""

    def draw(taken, i):
        number = jax.random.randint(jax.random.fold_in(key, i), (rows, 1), 0, bound - i)
        # The number-th of those that are not taken: the taken ones, in order, shift it up.
        number = number + (taken - jnp.arange(count) <= number).sum(1, keepdims=True)
        return jnp.sort(jnp.concatenate([taken[:, :-1], number], 1), 1), number[:, 0]

    beyond = jnp.full((rows, count), bound + count, jnp.int64)
    _, numbers = lax.scan(draw, beyond, jnp.arange(count))
    return numbers.T


@op("tree_conv", inputs="NodesVector EdgeSet Filter", outputs="Out", differentiable="NodesVector Filter", lod=None)
def tree_conv(nodes, edges, weight, *, max_depth=2):
    """For each node, a weighted sum of the nodes below it down to ``max_depth``, with weights for left, right and top.

    Edges are pairs of a parent and a child, counted from 1, up to a pair with a 0.

    differs: trees-of-a-batch, tree-gradient
    """
    coefficients = jax.vmap(partial(_shares, count=nodes.shape[1], max_depth=max_depth))(edges)
    patches = jnp.einsum("bpuv,bvf->bufp", coefficients.astype(nodes.dtype), nodes)
    return jnp.einsum("bufp,fpon->buon", patches, weight)


def _shares(edges: Any, count: int, max_depth: int) -> Any:
    """[part, root, node]: how far a node below a root counts as a left, a right and a top one."""
    exists = jnp.cumprod((edges != 0).all(1)).astype(bool)
    parents = jnp.where(exists, edges[:, 0] - 1, count)
    children = jnp.where(exists, edges[:, 1] - 1, count)
    siblings = parents[:, None] == parents
    before = jnp.tril(siblings, -1).sum(1)
    total = siblings.sum(1)
    position = jnp.where(total > 1, before / jnp.maximum(total - 1, 1), 0.5)
    of_child = jnp.full(count, 0.5).at[children].set(position, mode="drop")
    below = jnp.zeros((count, count)).at[parents, children].set(1, mode="drop")
    in_tree = jnp.arange(count) <= (edges != 0).all(1).sum()
    reached = jnp.diag(in_tree.astype(below.dtype))
    parts = jnp.zeros((3, count, count))
    for depth in range(max_depth):
        top = (max_depth - depth) / max_depth
        left = (1 - top) * of_child
        right = (1 - top) * (1 - left)
        parts += reached * jnp.stack([left, right, jnp.full(count, top)])[:, None]
        reached = reached @ below
    return parts
