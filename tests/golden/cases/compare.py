"""Comparisons, logic, and the tests for infinities and NaN."""

import numpy as np

from golden.case import Case, Lod, Rows, bools, f32, f64, ints, layer_case

INF, NAN = np.inf, np.nan
LEFT = np.float32([[1, 2, INF, -1], [1, NAN, 1e-9, 3]])
RIGHT = np.float32([[1, 3, 5, -2], [1 + 1e-6, NAN, 0, INF]])

CASES = []
for kind in ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"):
    CASES += [
        Case(kind, {"X": LEFT, "Y": RIGHT}),
        Case(kind, {"X": ints(2, 3, high=3), "Y": ints(2, 3, high=3, salt=1)}, name="int64"),
        Case(kind, {"X": ints(2, 3, high=3, dtype="int32"), "Y": ints(3, high=3, dtype="int32")}, name="broadcast"),
        Case(kind, {"X": f64(4), "Y": f64(1)}, name="float64"),
    ]
CASES += [
    Case("less_than", {"X": f32(2, 3), "Y": f32(2)}, attrs={"axis": 0}, name="axis"),
    Case("less_than", {"X": f32(2, 3), "Y": f32(1)}, attrs={"force_cpu": True}, name="force_cpu"),
    Case("equal", {"X": Lod(f32(5, 2), [[2, 3]]), "Y": Lod(f32(5, 2), [[2, 3]])}, name="sequence"),
    Case("logical_not", {"X": bools(2, 3)}),
    Case("logical_not", {"X": Lod(bools(5, 2), [[2, 3]])}, name="sequence"),
]
for kind in ("logical_and", "logical_or", "logical_xor"):
    CASES.append(Case(kind, {"X": bools(2, 3, salt=3), "Y": bools(2, 3, salt=4)}))
    CASES.append(Case(kind, {"X": bools(1), "Y": bools(1, salt=1)}, name="one"))
for kind in ("isfinite", "isinf", "isnan"):
    CASES += [
        Case(kind, {"X": np.float32([[1, 2], [3, -4]])}, name="finite"),
        Case(kind, {"X": np.float32([1, -INF])}, name="infinite"),
        Case(kind, {"X": np.float64([1, NAN])}, name="nan"),
        Case(kind, {"X": np.int64([1, 2])}, name="int64"),
        Case(kind, {"X": Rows([3, 1], np.float32([[1, 2], [INF, 1]]), 5)}, name="rows"),
    ]


@layer_case(CASES, grads=False, x=ints(2, 3, high=3), y=ints(2, 3, high=3, salt=1))
def comparison_layers(fluid, x, y):
    layers = fluid.layers
    return [
        layers.less_than(x, y),
        layers.less_equal(x, y),
        layers.greater_than(x, y),
        layers.greater_equal(x, y),
        layers.equal(x, y),
        layers.not_equal(x, y),
    ]


@layer_case(CASES, grads=False, x=f32(2, 3), y=f32(2, 3, salt=1))
def comparison_into_a_variable(fluid, x, y):
    layers = fluid.layers
    result = layers.create_tensor("bool", name="result")
    layers.less_than(x, y, cond=result)
    return [result, layers.less_than(x, y, force_cpu=True), layers.greater_equal(x, y, layers.create_tensor("bool"))]


@layer_case(CASES, grads=False, x=bools(2, 3), y=bools(2, 3, salt=1))
def logical_layers(fluid, x, y):
    layers = fluid.layers
    out = layers.create_tensor("bool", name="out")
    return [
        layers.logical_and(x, y),
        layers.logical_or(x, y, name="either"),
        layers.logical_xor(x, y, out=out),
        layers.logical_not(x),
        layers.logical_not(y, name="inverse"),
    ]


@layer_case(CASES, grads=False, x=np.float32([1, np.inf, np.nan]))
def finiteness_layers(fluid, x):
    return [fluid.layers.has_inf(x), fluid.layers.has_nan(x), fluid.layers.isfinite(x)]
