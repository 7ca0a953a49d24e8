"""Arg_min, arg_max, argsort, top_k, unique, and their layers."""

import numpy as np

from golden.case import Case, distinct, f32, ints, layer_case

CASES = [
    Case("arg_max", {"X": distinct(3, 4)}, attrs={"axis": 0}),
    Case("arg_max", {"X": distinct(3, 4)}, attrs={"axis": 1}),
    Case("arg_max", {"X": distinct(3, 4, 2)}, attrs={"axis": -2}),
    Case("arg_max", {"X": distinct(3, 4)}, attrs={"axis": 1, "keepdims": True}),
    Case("arg_max", {"X": distinct(3, 4)}, attrs={"axis": 1, "dtype": 2}),
    Case("arg_max", {"X": np.array([[1, 3, 3], [2, 2, 1]], "int32")}, attrs={"axis": 1}, name="ties"),
    Case("arg_min", {"X": distinct(3, 4)}, attrs={"axis": 0}),
    Case("arg_min", {"X": distinct(3, 4).astype("float64")}, attrs={"axis": -1}),
    Case("arg_min", {"X": np.array([[3, 1, 1], [2, 1, 1]], "int64")}, attrs={"axis": 1, "keepdims": True}, name="ties"),
    Case("argsort", {"X": distinct(3, 4)}, outputs="Out Indices", grads="X"),
    Case("argsort", {"X": distinct(3, 4)}, outputs="Out Indices", attrs={"axis": 0}, grads="X"),
    Case("argsort", {"X": distinct(3, 4, 2)}, outputs="Out Indices", attrs={"axis": 1, "descending": True}, grads="X"),
    Case("argsort", {"X": distinct(7).astype("float64")}, outputs="Out Indices", attrs={"descending": True}),
    Case("argsort", {"X": np.array([[3, -1, 2]], "int64")}, outputs="Out Indices"),
    Case("top_k", {"X": distinct(3, 5)}, outputs="Out Indices", attrs={"k": 2}, grads="X"),
    Case("top_k", {"X": distinct(3, 5)}, outputs="Out Indices", grads="X"),
    Case("top_k", {"X": distinct(6).astype("float64")}, outputs="Out Indices", attrs={"k": 6}),
    Case(
        "top_k",
        {"X": distinct(3, 5), "K": np.array([2], "int32")},
        outputs="Out Indices",
        attrs={"k": 2},
        grads="X",
        name="k-input",
    ),
    Case("unique", {"X": ints(8, high=4)}, outputs="Out Index", attrs={"dtype": 2}),
    Case("unique", {"X": np.array([0.5, -1, 0.5, 2], "float32")}, outputs="Out Index", attrs={"dtype": 3}),
    Case("unique_with_counts", {"X": ints(8, high=4)}, outputs="Out Index Count", attrs={"dtype": 3}),
    Case("unique_with_counts", {"X": np.array([2, 2, 1], "int32")}, outputs="Out Index Count", attrs={"dtype": 2}),
]


@layer_case(CASES, grads=False, x=distinct(3, 4))
def argmax_and_argmin_layers(fluid, x):
    return [fluid.layers.argmax(x), fluid.layers.argmax(x, axis=-1), fluid.layers.argmin(x, 1)]


@layer_case(CASES, grads=False, x=distinct(3, 4))
def argsort_layer(fluid, x):
    return list(fluid.layers.argsort(x)) + list(fluid.layers.argsort(input=x, axis=0, descending=True))


@layer_case(CASES, grads=False, x=distinct(3, 4))
def topk_layer(fluid, x):
    return fluid.layers.topk(x, k=2)


@layer_case(CASES, grads=False, x=distinct(3, 4))
def topk_layer_with_computed_k(fluid, x):
    values, indices = fluid.layers.topk(x, fluid.layers.fill_constant([1], "int32", 2))
    # Real Fluid takes k to be 1 while building, so only what does not depend on k is compared.
    return [fluid.layers.reduce_sum(values), fluid.layers.reduce_sum(indices)]


@layer_case(CASES, grads=False, x=ints(8, high=4))
def unique_layers(fluid, x):
    return list(fluid.layers.unique(x)) + list(fluid.layers.unique_with_counts(x, dtype="int64"))


@layer_case(CASES, grads=False, x=ints(8, high=4), y=f32(3))
def unique_in_the_middle_of_a_program(fluid, x, y):
    found, _ = fluid.layers.unique(fluid.layers.elementwise_add(x, x))
    return [fluid.layers.cast(found, "float32"), fluid.layers.scale(y, 2.0)]
