"""Embedding lookups, their dense and sparse gradients, and ops on SelectedRows."""

import numpy as np

from golden.case import Case, Lod, Rows, f32, f64, ints, layer_case


def column(*values):
    return np.array(values, "int64").reshape(-1, 1)


TABLE = f32(5, 3)
REPEATED = column(1, 3, 1, 0)
GRADIENT = Rows([3, 1, 3, 0], f32(4, 2), 5)

CASES = [
    Case("lookup_table", {"W": TABLE, "Ids": REPEATED}, grads="W"),
    Case("lookup_table", {"W": TABLE, "Ids": REPEATED.reshape(2, 2, 1)}, grads="W"),
    Case("lookup_table", {"W": TABLE, "Ids": REPEATED.reshape(2, 1, 2, 1)}, grads="W"),
    Case("lookup_table", {"W": TABLE, "Ids": column(2)}, grads="W"),
    Case("lookup_table", {"W": TABLE, "Ids": REPEATED}, attrs={"padding_idx": 1}, grads="W"),
    Case("lookup_table", {"W": TABLE, "Ids": REPEATED}, attrs={"is_sparse": True}, grads="W"),
    Case(
        "lookup_table",
        {"W": TABLE, "Ids": REPEATED.reshape(2, 2, 1)},
        attrs={"is_sparse": True, "padding_idx": 1},
        grads="W",
    ),
    Case("lookup_table", {"W": f64(5, 3), "Ids": REPEATED}),
    Case("lookup_table", {"W": TABLE, "Ids": Lod(REPEATED, [[1, 3]])}, grads="W"),
    Case("lookup_table_v2", {"W": TABLE, "Ids": REPEATED}, grads="W"),
    Case("lookup_table_v2", {"W": TABLE, "Ids": REPEATED.reshape(2, 2)}, grads="W"),
    Case("lookup_table_v2", {"W": TABLE, "Ids": REPEATED.reshape(2, 2, 1)}, grads="W"),
    Case("lookup_table_v2", {"W": TABLE, "Ids": REPEATED.reshape(4)}, grads="W"),
    Case("lookup_table_v2", {"W": TABLE, "Ids": REPEATED.reshape(2, 2)}, attrs={"padding_idx": 3}, grads="W"),
    Case("lookup_table_v2", {"W": TABLE, "Ids": REPEATED.reshape(2, 2)}, attrs={"is_sparse": True}, grads="W"),
    Case(
        "lookup_table_v2",
        {"W": TABLE, "Ids": REPEATED.reshape(4)},
        attrs={"is_sparse": True, "padding_idx": 1},
        grads="W",
    ),
    Case("lookup_table_v2", {"W": f64(4, 2), "Ids": ints(2, 3, high=4)}),
    Case("lookup_table_dequant", {"W": f32(5, 4), "Ids": column(1, 3)}),
    Case("lookup_table_dequant", {"W": f32(4, 5), "Ids": column(1, 3, 0).reshape(3, 1, 1)}),
    Case("merge_selected_rows", {"X": GRADIENT}),
    Case("get_tensor_from_selected_rows", {"X": GRADIENT}),
]


@layer_case(CASES, ids=ints(4, 1, high=6))
def embedding_layer(fluid, ids):
    return fluid.layers.embedding(ids, [6, 3])


@layer_case(CASES, ids=ints(2, 4, 1, high=6))
def embedding_layer_sparse(fluid, ids):
    return fluid.layers.embedding(ids, [6, 3], is_sparse=True, param_attr=fluid.ParamAttr(name="table"))


@layer_case(CASES, ids=Lod(column(0, 5, 5, 2), [[3, 1]]))
def embedding_layer_padded_sequences(fluid, ids):
    return fluid.layers.embedding(ids, [6, 3], padding_idx=-1, dtype="float32")


@layer_case(CASES, left=ints(3, 1, high=6), right=ints(3, 1, high=6, salt=1))
def embedding_layers_sharing_a_sparse_table(fluid, left, right):
    shared = fluid.ParamAttr(name="shared")
    return [fluid.layers.embedding(ids, [6, 2], is_sparse=True, param_attr=shared) for ids in (left, right)]


@layer_case(CASES, ids=ints(2, 3, high=6))
def embedding_of_any_shape(fluid, ids):
    return fluid.embedding(ids, [6, 3], padding_idx=2)


@layer_case(CASES, ids=ints(5, high=6))
def embedding_of_any_shape_sparse(fluid, ids):
    return fluid.embedding(ids, [6, 3], is_sparse=True)


@layer_case(CASES, grads=False, ids=ints(2, 3, high=4))
def one_hot_of_any_shape(fluid, ids):
    return fluid.one_hot(ids, 4)


@layer_case(CASES, grads=False, ids=column(3, 5, 1))
def one_hot_out_of_range(fluid, ids):
    return fluid.one_hot(ids, 4, allow_out_of_range=True)


@layer_case(CASES, grads=False, ops=False, ids=column(4, 0, 2))
def tensor_from_merged_selected_rows(fluid, ids):
    embedded = fluid.layers.embedding(ids, [6, 3], is_sparse=True, param_attr=fluid.ParamAttr(name="table"))
    table = fluid.default_main_program().global_block().var("table")
    gradient = fluid.gradients([embedded], [table])[0]
    return fluid.layers.get_tensor_from_selected_rows(fluid.layers.merge_selected_rows(gradient))


@layer_case(CASES, grads=False, ops=False, ids=column(4, 0, 4))
def norm_of_selected_rows(fluid, ids):
    embedded = fluid.layers.embedding(ids, [6, 3], is_sparse=True, param_attr=fluid.ParamAttr(name="table"))
    table = fluid.default_main_program().global_block().var("table")
    gradient = fluid.gradients([embedded], [table])[0]
    merged = fluid.layers.get_tensor_from_selected_rows(fluid.layers.merge_selected_rows(gradient))
    return fluid.layers.reduce_sum(fluid.layers.square(merged))


@layer_case(CASES, grads=False, ids=column(4, 0, 4, 1))
def sparse_embedding_after_a_step_of_sgd(fluid, ids):
    embedded = fluid.layers.embedding(ids, [6, 3], is_sparse=True, param_attr=fluid.ParamAttr(name="table"))
    loss = fluid.layers.mean(fluid.layers.square(embedded))
    fluid.optimizer.SGD(0.5).minimize(loss)
    return [loss, fluid.default_main_program().global_block().var("table")]
