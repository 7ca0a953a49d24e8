"""Reductions, norms and running sums."""

import numpy as np

from golden.case import Case, Lod, bools, distinct, f32, f64, ints, layer_case

DIMS = [
    {"dim": [0]},
    {"dim": [1], "keep_dim": True},
    {"dim": [-1]},
    {"dim": [0, 2]},
    {"dim": [-1, 0], "keep_dim": True},
    {"dim": [0], "reduce_all": True},
    {"dim": [0], "reduce_all": True, "keep_dim": True},
]


def label(attrs):
    return " ".join("%s=%s" % item for item in sorted(attrs.items()))


CASES = []
for kind in ("sum", "mean", "max", "min", "prod"):
    for attrs in DIMS:
        # Real Fluid has no gradient for this combination, or a wrong one.
        grads = "" if attrs.get("reduce_all") and attrs.get("keep_dim") else "X"
        CASES.append(
            Case(
                "reduce_" + kind,
                {"X": distinct(2, 3, 4) + np.float32(0.17)},
                attrs=attrs,
                grads=grads,
                name=label(attrs),
            )
        )
    CASES += [
        Case("reduce_" + kind, {"X": f32(5)}, attrs={"dim": [0]}, grads="X", name="vector"),
        Case("reduce_" + kind, {"X": f32(1, 4, 1)}, attrs={"dim": [0]}, grads="X", name="size 1"),
        Case("reduce_" + kind, {"X": f64(2, 3)}, attrs={"dim": [1]}, name="float64"),
        Case("reduce_" + kind, {"X": np.int64([[1, 2, 5], [3, 4, -8]])}, attrs={"dim": [1]}, name="int64"),
        Case("reduce_" + kind, {"X": np.int32([[1, 2, 5], [3, 4, -8]])}, attrs={"dim": [0]}, name="int32"),
    ]
for kind in ("all", "any"):
    for attrs in DIMS:
        CASES.append(Case("reduce_" + kind, {"X": bools(2, 3, 4)}, attrs=attrs, name=label(attrs)))
    CASES.append(Case("reduce_" + kind, {"X": np.ones((2, 2), bool)}, attrs={"dim": [1]}, name="true"))

CASES += [
    Case("reduce_max", {"X": np.float32([[1, 3, 3], [2, 2, 2]])}, attrs={"dim": [1]}, grads="X", name="tie"),
    Case("reduce_min", {"X": np.float32([[1, 3, 1], [2, 2, 2]])}, attrs={"dim": [1]}, grads="X", name="tie"),
    Case("reduce_sum", {"X": f32(2, 3)}, attrs={"dim": [0], "in_dtype": 5, "out_dtype": 6}, name="out_dtype"),
    Case("reduce_mean", {"X": ints(2, 3, high=9)}, attrs={"dim": [0], "in_dtype": 5, "out_dtype": 5}, name="to float"),
    Case("reduce_sum", {"X": Lod(f32(5, 2), [[2, 3]])}, attrs={"dim": [1], "keep_dim": True}, name="in sequence"),
    Case("reduce_sum", {"X": Lod(f32(5, 2), [[2, 3]])}, attrs={"dim": [0]}, name="over sequence"),
    Case("reduce_mean", {"X": Lod(f32(5, 2), [[2, 3]])}, attrs={"reduce_all": True}, name="all of sequence"),
    Case("mean", {"X": f32(2, 3)}, grads="X"),
    Case("mean", {"X": f64(5)}, grads="X", name="float64"),
    Case("mean", {"X": f32(1)}, grads="X", name="one"),
    Case("mean", {"X": Lod(f32(5, 2), [[2, 3]])}, name="sequence"),
    Case("squared_l2_norm", {"X": f32(2, 3)}, grads="X"),
    Case("squared_l2_norm", {"X": f32(7)}, grads="X", name="vector"),
    Case("l1_norm", {"X": f32(2, 3)}, grads="X"),
    Case("l1_norm", {"X": np.float32([-1, 0, 2])}, grads="X", name="zero"),
    Case("norm", {"X": f32(2, 3)}, outputs="Out Norm", attrs={"axis": 1, "epsilon": 1e-10}),
    Case(
        "norm",
        {"X": f32(2, 3, 4)},
        outputs="Out Norm",
        attrs={"axis": -1, "epsilon": 0.1},
        grads="X",
        skip="Norm",
        reason="scratch",
        name="epsilon",
    ),
    Case(
        "norm",
        {"X": f32(2, 3, 4)},
        outputs="Out Norm",
        attrs={"axis": 1},
        grads="X",
        skip="Norm",
        reason="scratch",
        name="default epsilon",
    ),
    Case(
        "norm",
        {"X": f32(2, 3) * 0},
        outputs="Out Norm",
        attrs={"axis": 0},
        grads="X",
        skip="Norm",
        reason="scratch",
        name="zeros",
    ),
    Case("norm", {"X": f64(2, 3)}, outputs="Out Norm", attrs={"axis": 0, "epsilon": 1e-12}, name="float64"),
    Case("norm", {"X": Lod(f32(5, 2), [[2, 3]])}, outputs="Out Norm", attrs={"axis": 1}, name="sequence"),
    Case("p_norm", {"X": f32(2, 3)}, attrs={"porder": 2.0, "axis": -1}, grads="X"),
    Case("p_norm", {"X": f32(2, 3, 4)}, attrs={"porder": 3.0, "axis": 1, "keepdim": True}, grads="X", name="keepdim"),
    Case("p_norm", {"X": f32(2, 3)}, attrs={"porder": 1.0, "axis": 0}, grads="X", name="sum"),
    Case("frobenius_norm", {"X": f32(2, 3, 4)}, attrs={"dim": [0, 2]}, grads="X"),
    Case("frobenius_norm", {"X": f32(2, 3)}, attrs={"dim": [1], "keep_dim": True}, grads="X", name="keep_dim"),
    Case("frobenius_norm", {"X": f32(2, 3)}, attrs={"dim": [0], "reduce_all": True}, grads="X", name="all"),
    Case("cumsum", {"X": f32(2, 3)}, grads="X"),
    Case("cumsum", {"X": f32(3)}, attrs={"axis": -1, "exclusive": True}, grads="X", name="exclusive"),
    Case("cumsum", {"X": f32(2, 3, 2)}, attrs={"axis": 1, "reverse": True}, grads="X", name="reverse"),
    Case("cumsum", {"X": f32(2, 3)}, attrs={"axis": 0, "exclusive": True, "reverse": True}, grads="X", name="both"),
    Case("cumsum", {"X": f64(2, 3)}, attrs={"axis": 0}, name="float64"),
    Case("cumsum", {"X": ints(2, 3, high=9)}, attrs={"axis": 1, "exclusive": True}, name="int64"),
    Case("cumsum", {"X": Lod(f32(5, 2), [[2, 3]])}, attrs={"axis": 0}, name="sequence"),
]
for order in (0.0, 1.0, 2.0, 3.0, float("inf"), float("-inf")):
    CASES.append(
        Case("dist", {"X": f32(2, 3), "Y": f32(2, 3, salt=1)}, attrs={"p": order}, grads="X Y", name="order %s" % order)
    )
CASES.append(Case("dist", {"X": f32(2, 3), "Y": f32(3, salt=1)}, attrs={"p": 2.0}, grads="X Y", name="broadcast"))


@layer_case(CASES, x=distinct(2, 3, 4) + np.float32(0.17))
def reduce_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.reduce_sum(x),
        layers.reduce_sum(x, dim=1),
        layers.reduce_mean(x, dim=[0, -1], keep_dim=True),
        layers.reduce_mean(x, -1, name="averaged"),
        layers.reduce_max(x, dim=[1]),
        layers.reduce_min(x, 0),
        layers.reduce_prod(x, dim=2, keep_dim=True),
    ]


@layer_case(CASES, grads=False, x=bools(2, 3, 4))
def logical_reduce_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.reduce_all(x),
        layers.reduce_any(x),
        layers.reduce_all(x, dim=0),
        layers.reduce_any(x, dim=[1, 2], keep_dim=True, name="some"),
    ]


@layer_case(CASES, x=f32(2, 3, 4))
def norm_and_mean_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.mean(x),
        layers.mean(x, name="average"),
        layers.l2_normalize(x, axis=1),
        layers.l2_normalize(x, -1, epsilon=0.5, name="unit"),
    ]


@layer_case(CASES, grads=False, x=f32(2, 3, 4))
def reduce_layers_keep_all_dims(fluid, x):
    return fluid.layers.reduce_sum(x, keep_dim=True), fluid.layers.reduce_max(x, dim=[], keep_dim=True)


@layer_case(CASES, x=f32(5))
def l2_normalize_of_a_vector(fluid, x):
    return fluid.layers.elementwise_mul(fluid.layers.l2_normalize(x, axis=1), x)


@layer_case(CASES, x=f32(2, 3))
def cumsum_layer(fluid, x):
    layers = fluid.layers
    return [layers.cumsum(x), layers.cumsum(x, axis=0, reverse=True), layers.cumsum(x, 1, True)]
