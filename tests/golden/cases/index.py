"""Gather, scatter, where, one_hot, multiplex and other ops on indices, and their layers."""

import numpy as np

from golden.case import Case, bools, f32, f64, ints, layer_case


def _i64(*values):
    return np.array(values, "int64")


def _column(*values):
    return np.array(values, "int64").reshape(-1, 1)


CASES = [
    Case("gather", {"X": f32(4, 3), "Index": _i64(2, 0, 3)}, grads="X"),
    Case("gather", {"X": f32(4, 3), "Index": _i64(1, 1, 3)}, grads="X", name="twice"),
    Case("gather", {"X": f32(4, 3), "Index": _i64(1, 1, 3)}, attrs={"overwrite": False}, grads="X", name="accumulate"),
    Case("gather", {"X": f64(4, 2, 3), "Index": np.array([[3], [0]], "int32")}),
    Case("gather", {"X": f32(4), "Index": _i64(3, 3, 1)}, attrs={"overwrite": False}, grads="X"),
    Case("gather", {"X": ints(4, 2, high=9), "Index": _i64(3)}),
    Case("gather_nd", {"X": f32(4, 3), "Index": _i64([1, 1], [3, 0], [1, 1])}, grads="X"),
    Case("gather_nd", {"X": f32(4, 3, 2), "Index": _i64([1], [0], [1])}, grads="X"),
    Case("gather_nd", {"X": f64(4, 3, 2), "Index": ints(2, 2, 2, high=3)}),
    Case("gather_nd", {"X": ints(4, 3, high=9), "Index": np.array([[0, 2]], "int32")}),
    Case("scatter", {"X": f32(4, 3), "Ids": _i64(2, 0), "Updates": f32(2, 3)}, grads="X Updates"),
    Case("scatter", {"X": f32(4, 3), "Ids": _i64(1, 1, 3), "Updates": f32(3, 3)}, grads="X Updates", name="twice"),
    Case(
        "scatter",
        {"X": f32(4, 3), "Ids": _i64(1, 1, 3), "Updates": f32(3, 3)},
        attrs={"overwrite": False},
        grads="X Updates",
        name="accumulate",
    ),
    Case("scatter", {"X": f64(4, 2, 2), "Ids": np.array([3, 1], "int32"), "Updates": f64(2, 2, 2)}),
    Case("scatter_nd_add", {"X": f32(4, 3), "Index": _i64([1], [1], [0]), "Updates": f32(3, 3)}, grads="X Updates"),
    Case("scatter_nd_add", {"X": f32(4, 3), "Index": _i64([1, 2], [1, 2]), "Updates": f32(2)}, grads="X Updates"),
    Case("scatter_nd_add", {"X": f64(3, 3, 2), "Index": ints(2, 2, 2, high=3), "Updates": f64(2, 2, 2)}),
    Case("index_select", {"X": f32(4, 3), "Index": _i64(2, 0, 2)}, grads="X"),
    Case("index_select", {"X": f32(4, 3), "Index": np.array([2, 2], "int32")}, attrs={"dim": 1}, grads="X"),
    Case("index_sample", {"X": f32(4, 3), "Index": ints(4, 2, high=3)}, grads="X"),
    Case("index_sample", {"X": ints(4, 3, high=9), "Index": ints(4, 2, high=3, dtype="int32")}),
    Case("where", {"Condition": bools(3, 4), "X": f32(3, 4), "Y": f32(3, 4, salt=1)}, grads="X Y"),
    Case("where", {"Condition": bools(5), "X": ints(5, high=9), "Y": ints(5, high=9, salt=1)}),
    Case("where_index", {"Condition": bools(3, 4)}),
    Case("where_index", {"Condition": bools(6)}),
    Case(
        "multiplex",
        {"Ids": np.array([[1], [0], [1], [2]], "int32"), "X": [f32(4, 3), f32(4, 3, salt=1), f32(4, 3, salt=2)]},
        grads="X",
    ),
    Case("one_hot", {"X": _column(1, 0, 3)}, attrs={"depth": 4}),
    Case("one_hot", {"X": ints(2, 3, 1, high=4)}, attrs={"depth": 4, "dtype": 3}),
    Case("one_hot", {"X": ints(3, 1, high=4, dtype="int32")}, attrs={"depth": 4}),
    Case("one_hot", {"X": _column(1, 7, -2)}, attrs={"depth": 4, "allow_out_of_range": True}),
    Case("one_hot", {"X": _column(1, 0), "depth_tensor": np.array([3], "int32")}, name="depth-input"),
    Case("one_hot_v2", {"X": ints(2, 3, high=4)}, attrs={"depth": 4}),
    Case("one_hot_v2", {"X": ints(3, 1, high=4)}, attrs={"depth": 4, "dtype": 6}),
    Case("one_hot_v2", {"X": _i64(1, 9)}, attrs={"depth": 4, "allow_out_of_range": True}),
    Case("one_hot_v2", {"X": _i64(1, 0), "depth_tensor": np.array([3], "int32")}, name="depth-input"),
    Case(
        "shard_index",
        {"X": ints(5, 1, high=20)},
        attrs={"index_num": 20, "nshards": 2, "shard_id": 1, "ignore_value": -1},
    ),
    Case(
        "shard_index",
        {"X": ints(5, 1, high=20)},
        attrs={"index_num": 20, "nshards": 3, "shard_id": 0, "ignore_value": 7},
    ),
]


@layer_case(CASES, x=f32(4, 3), index=_i64(2, 0, 2))
def gather_layer(fluid, x, index):
    return [fluid.layers.gather(x, index), fluid.layers.gather(x, index, overwrite=False)]


@layer_case(CASES, x=f32(4, 3), index=_i64([2, 1], [0, 0]))
def gather_nd_layer(fluid, x, index):
    return fluid.layers.gather_nd(x, index, name="picked")


@layer_case(CASES, x=f32(4, 3), index=_i64(2, 0), updates=f32(2, 3))
def scatter_layer(fluid, x, index, updates):
    return [fluid.layers.scatter(x, index, updates), fluid.layers.scatter(x, index, updates, overwrite=False)]


@layer_case(CASES, x=f32(4, 3), index=_i64([2], [2]), updates=f32(2, 3))
def scatter_nd_layers(fluid, x, index, updates):
    return [fluid.layers.scatter_nd_add(x, index, updates), fluid.layers.scatter_nd(index, updates, [5, 3])]


@layer_case(CASES, grads=False, condition=bools(3, 4))
def where_layer(fluid, condition):
    return fluid.layers.where(condition)


@layer_case(CASES, x=f32(3, 2), y=f32(3, 2, salt=1), index=np.array([[1], [0], [1]], "int32"))
def multiplex_layer(fluid, x, y, index):
    return fluid.layers.multiplex([x, y], index)


@layer_case(CASES, grads=False, x=ints(3, 1, high=4))
def one_hot_layer(fluid, x):
    depth = fluid.layers.fill_constant([1], "int32", 4)
    return [
        fluid.layers.one_hot(x, 4),
        fluid.layers.one_hot(x, depth),
        fluid.one_hot(x, 4),
        fluid.layers.one_hot(input=x, depth=2, allow_out_of_range=True),
    ]


@layer_case(CASES, grads=False, x=ints(5, 1, high=20))
def shard_index_layer(fluid, x):
    return fluid.layers.shard_index(x, index_num=20, nshards=2, shard_id=0, ignore_value=-5)
