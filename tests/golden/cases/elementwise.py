"""The elementwise_* ops with every way to place Y on X, and sum, scale, minus, clip, clip_by_norm."""

import numpy as np

from golden.case import Case, Lod, Rows, f32, f64, ints, layer_case


def apart(*shape):
    """X and Y that are well away from ties and from zero."""
    return {"X": f32(*shape, low=0.3, high=2.0), "Y": f32(*shape, low=0.3, high=2.0, salt="y")}


ROWS = Rows([3, 1, 3, 0], f32(4, 2, salt="rows") * 3, 5)

CASES = [
    Case("elementwise_" + kind, apart(2, 3), grads="X Y", name="same shape")
    for kind in ("add", "sub", "mul", "div", "max", "min", "pow")
]

# X shape, Y shape, axis
for x, y, axis in [
    ((2, 3, 4), (4,), -1),
    ((2, 3, 4), (3, 4), -1),
    ((2, 3, 4), (3,), 1),
    ((2, 3, 4), (2,), 0),
    ((2, 3, 4), (2, 3), 0),
    ((2, 3, 4), (1,), -1),
    ((2, 3, 4), (1,), 0),
    ((2, 3, 4), (3, 1), 1),
    ((2, 3, 4), (2, 1), 0),
    ((2, 3, 4), (2, 1, 1), 0),
    ((2, 3, 4), (2, 3, 1), 0),
    ((2, 3), (1, 1), -1),
    ((2, 3, 1), (2, 3), 0),
    ((4, 1), (4,), 0),
    ((2, 3, 4, 5), (3, 4), 1),
    ((2, 1, 4), (2, 3, 1), -1),
    ((3,), (2, 3), -1),
    ((2,), (2, 3), 0),
    ((1,), (2, 3), -1),
    ((2, 3), (1, 1, 1), -1),
]:
    for kind in ("add", "mul") if axis else ("sub", "div", "max"):
        CASES.append(
            Case(
                "elementwise_" + kind,
                {"X": f32(*x, low=0.5, high=2.0), "Y": f32(*y, low=0.5, high=2.0)},
                attrs={"axis": axis},
                grads="X Y",
                name="%s on %s from %d" % (y, x, axis),
            )
        )

CASES += [
    Case("elementwise_add", {"X": f64(2, 3), "Y": f64(3)}, grads="X Y", name="float64"),
    Case("elementwise_pow", {"X": f64(2, 3, low=0.2), "Y": f64(2, 3, salt=1)}, grads="X Y", name="float64"),
    Case(
        "elementwise_pow",
        {"X": np.float32([-2, -1, 0, 1.5]), "Y": np.float32([2, 3, 1, 2])},
        grads="X",
        name="whole exponents of negative numbers",
    ),
    Case("elementwise_pow", {"X": f32(2, 3, low=0.2), "Y": f32(1)}, grads="X Y", name="one exponent"),
    Case("elementwise_max", {"X": np.float32([1, 2, 3]), "Y": np.float32([1, 3, 2])}, grads="X Y", name="tie"),
    Case("elementwise_min", {"X": np.float32([1, 2, 3]), "Y": np.float32([1, 3, 2])}, grads="X Y", name="tie"),
    Case("elementwise_min", {"X": f32(2, 3, 4), "Y": f32(3, salt=1)}, attrs={"axis": 1}, grads="X Y", name="axis"),
    Case("elementwise_add", {"X": Lod(f32(5, 2), [[2, 3]]), "Y": f32(2)}, grads="X Y", name="sequence"),
    Case("elementwise_add", {"X": f32(5, 2), "Y": Lod(f32(5, 2), [[2, 3]])}, name="sequence in Y"),
    Case("elementwise_mul", {"X": ROWS, "Y": np.float32([2.5])}, name="rows"),
    Case("elementwise_mod", {"X": np.float32([-7.5, 7.5, -7, 7, 6]), "Y": np.float32([2, -2, -2, 2, 3])}),
    Case("elementwise_mod", {"X": f32(2, 3, high=5), "Y": f32(3, low=0.5, high=2)}, name="broadcast"),
]

X_INTS, Y_INTS = np.int64([[-7, 7, -7], [7, 6, 2**40]]), np.int64([[2, -2, -2], [2, 3, 7]])
for kind in ("add", "sub", "mul", "div", "max", "min", "mod", "floordiv"):
    CASES.append(Case("elementwise_" + kind, {"X": X_INTS, "Y": Y_INTS}, name="int64"))
    CASES.append(
        Case(
            "elementwise_" + kind,
            {"X": np.int32([[-7, 7, -5], [7, 6, 3]]), "Y": np.int32([3, -2, 5])},
            name="int32 broadcast",
        )
    )
CASES += [
    Case("elementwise_pow", {"X": np.int64([-7, 7, -7, 2, 6]), "Y": np.int64([2, 1, 0, -1, 3])}, name="int64"),
    Case("minus", {"X": f32(2, 3), "Y": f32(2, 3, salt=1)}, grads="X Y"),
    Case("minus", {"X": Lod(f32(5, 2), [[2, 3]]), "Y": Lod(f32(5, 2, salt=1), [[2, 3]])}, name="sequence"),
    Case("sum", {"X": [f32(2, 3)]}, grads="X", name="one"),
    Case("sum", {"X": [f32(2, 3), f32(2, 3, salt=1), f32(2, 3, salt=2)]}, grads="X"),
    Case("sum", {"X": [f64(3), f64(3, salt=1)]}, grads="X", name="float64"),
    Case("sum", {"X": [ints(4, high=9), ints(4, high=9, salt=1)]}, name="int64"),
    Case("sum", {"X": [Lod(f32(5, 2), [[2, 3]]), Lod(f32(5, 2, salt=1), [[2, 3]])]}, name="sequence"),
    Case("sum", {"X": [ROWS]}, name="rows"),
    Case("sum", {"X": [ROWS, f32(5, 2)]}, name="rows and dense"),
    Case("sum", {"X": [f32(5, 2), ROWS]}, name="dense and rows"),
    Case("scale", {"X": f32(2, 3)}, attrs={"scale": 2.5}, grads="X"),
    Case("scale", {"X": f32(2, 3)}, attrs={"scale": -2.0, "bias": 0.7}, grads="X", name="bias"),
    Case(
        "scale",
        {"X": f32(2, 3)},
        attrs={"scale": 2.0, "bias": 0.7, "bias_after_scale": False},
        grads="X",
        name="bias first",
    ),
    Case("scale", {"X": f32(2, 3), "ScaleTensor": np.float32([3])}, attrs={"scale": 2.0, "bias": 1.0}, name="tensor"),
    Case("scale", {"X": f64(3)}, attrs={"scale": 0.5, "bias": 0.25}, grads="X", name="float64"),
    Case("scale", {"X": np.int64([-2, 0, 2**40])}, attrs={"scale": 1.7, "bias": 2.7}, name="int64"),
    Case("scale", {"X": np.int32([-2, 0, 3])}, attrs={"scale": 2.0, "bias": -1.0}, name="int32"),
    Case("scale", {"X": ROWS}, attrs={"scale": 1.5, "bias": 0.5}, inplace={"Out": "X"}, name="rows"),
    Case("scale", {"X": Lod(f32(5, 2), [[2, 3]])}, attrs={"scale": 1.5}, grads="X", name="sequence"),
    Case("clip", {"X": np.float32([-2, -1, -0.5, 0, 0.5, 1, 2])}, attrs={"min": -1.0, "max": 1.0}, grads="X"),
    Case("clip", {"X": f32(2, 3, 4)}, attrs={"min": -0.3, "max": 0.6}, grads="X", name="inside"),
    Case(
        "clip",
        {"X": f32(6), "Min": np.float32([-0.5]), "Max": np.float32([0.4])},
        attrs={"min": -1.0, "max": 1.0},
        grads="X",
        name="tensors",
    ),
    Case("clip", {"X": f64(6)}, attrs={"min": -0.3, "max": 0.6}, name="float64"),
    Case("clip_by_norm", {"X": f32(2, 3)}, attrs={"max_norm": 0.5}),
    Case("clip_by_norm", {"X": f32(2, 3)}, attrs={"max_norm": 50.0}, name="short enough"),
    Case("clip_by_norm", {"X": ROWS}, attrs={"max_norm": 1.5}, inplace={"Out": "X"}, name="rows"),
]

TABLE = {"low": 0.3, "high": 2.0}


@layer_case(CASES, x=f32(2, 3, 4, **TABLE), y=f32(3, 4, **TABLE))
def elementwise_layers(fluid, x, y):
    layers = fluid.layers
    return [
        layers.elementwise_add(x, y),
        layers.elementwise_sub(x, y),
        layers.elementwise_mul(x, y, axis=1),
        layers.elementwise_div(x, y, axis=1),
        layers.elementwise_max(x, y),
        layers.elementwise_min(x, y),
        layers.elementwise_pow(x, y),
    ]


@layer_case(CASES, x=f32(2, 3), y=f32(2))
def elementwise_with_axis_act_and_name(fluid, x, y):
    return [
        fluid.layers.elementwise_add(x, y, axis=0, act="relu", name="added"),
        fluid.layers.elementwise_mul(x, y, 0, "tanh"),
    ]


@layer_case(CASES, grads=False, x=np.int64([[-7, 7, 9]]), y=np.int64([[2, -2, 5]]))
def integer_elementwise_layers(fluid, x, y):
    return [
        fluid.layers.elementwise_mod(x, y),
        fluid.layers.elementwise_floordiv(x, y),
        fluid.layers.elementwise_add(x, y),
    ]


@layer_case(CASES, x=f32(2, 3))
def scale_layer(fluid, x):
    layers = fluid.layers
    return [
        layers.scale(x),
        layers.scale(x, 2.0, 0.5),
        layers.scale(x, scale=3, bias=1, bias_after_scale=False),
        layers.scale(x, -1.0, act="relu", name="scaled"),
        layers.scale(x, layers.fill_constant([1], "float32", 0.5)),
    ]


@layer_case(CASES, x=f32(2, 3), y=f32(2, 3, salt=1))
def sum_layer(fluid, x, y):
    return [fluid.layers.sum(x), fluid.layers.sum([x, y, x])]


@layer_case(CASES, x=f32(2, 3))
def clip_layers(fluid, x):
    return fluid.layers.clip(x, -0.3, 0.5), fluid.layers.clip(x, min=-0.2, max=1, name="cut")


@layer_case(CASES, grads=False, x=f32(2, 3))
def clip_by_norm_layer(fluid, x):
    return fluid.layers.clip_by_norm(x, 0.5), fluid.layers.clip_by_norm(x, max_norm=2.0, name="cut")


@layer_case(CASES, x=f32(4, 3), ids=ints(4, 1, high=6), other_ids=ints(3, 1, high=6, salt=1))
def shared_sparse_embedding_sums_its_row_gradients(fluid, x, ids, other_ids):
    layers, table = fluid.layers, fluid.ParamAttr(name="table")
    first = layers.embedding(ids, [6, 3], is_sparse=True, param_attr=table)
    second = layers.embedding(other_ids, [6, 3], is_sparse=True, param_attr=table)
    return [layers.elementwise_mul(first, x), layers.scale(second, 2.0)]
