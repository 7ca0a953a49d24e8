"""Ops that few programs use: tests of tensors as a whole, diagonals, parts of columns, and 8-bit integers."""

import numpy as np

from golden.case import Case, Lod, f32, f64, ints, layer_case

CASES = []
X, Y = f32(3, 4), f32(3, 4, salt=2)

# --- whether tensors are equal
WITH_NAN = np.where(np.arange(12).reshape(3, 4) == 5, np.float32(np.nan), X)
SAME_ROWS = np.tile(f32(1, 4), (3, 1))
for name, one, other, attrs in (
    ("equal", X, X, {}),
    ("almost", X, X + np.float32(1e-7), {}),
    ("different", X, Y, {}),
    ("atol", X, X + np.float32(0.01), {"atol": 0.1, "rtol": 0.0}),
    ("rtol", X, X * np.float32(1.01), {"atol": 0.0, "rtol": 0.1}),
    ("not-rtol", X, X * np.float32(1.2), {"atol": 0.0, "rtol": 0.1}),
    ("nan", WITH_NAN, WITH_NAN, {}),
    ("equal-nan", WITH_NAN, WITH_NAN, {"equal_nan": True}),
    ("float64", f64(5), f64(5), {}),
):
    CASES.append(Case("allclose", {"Input": one, "Other": other}, attrs=attrs, name=name))
for name, one, other, attrs in (
    ("equal", X, X, {}),
    ("different", X, Y, {}),
    ("one-row", SAME_ROWS, SAME_ROWS[0], {}),
    ("axis", f32(3, 1) + np.zeros((3, 4), "float32"), f32(3, 1)[:, 0], {"axis": 0}),
    ("integers", ints(5, high=9), ints(5, high=9), {}),
):
    CASES.append(Case("equal_reduce", {"X": one, "Y": other}, attrs=attrs, name=name))


@layer_case(CASES, grads=False, x=X, y=Y)
def allclose_layer(fluid, x, y):
    return [fluid.layers.allclose(x, y), fluid.layers.allclose(x, y, rtol=0.5, atol=3.0, equal_nan=True, name="near")]


# --- diagonals
for name, x, attrs in (
    ("vector", f32(3), {}),
    ("above", f32(2), {"offset": 1}),
    ("batch", f32(2, 3), {}),
    ("below", f32(2, 3), {"offset": -2}),
    ("outer-dims", f32(2, 3), {"dim1": 0, "dim2": 2}),
    ("turned", f32(2, 3), {"dim1": 2, "dim2": 0, "offset": 1}),
    ("integers", ints(2, 3, high=9), {"dim1": 1, "dim2": 0, "offset": 1}),
):
    CASES.append(Case("diag_embed", {"Input": x}, attrs=attrs, name=name))


@layer_case(CASES, grads=False, x=f32(2, 3))
def diag_embed_layer(fluid, x):
    return [fluid.layers.diag_embed(x), fluid.layers.diag_embed(np.float32([1, 2]), offset=1, dim1=1, dim2=0)]


# --- columns of several inputs
for op in ("partial_concat", "partial_sum"):
    for name, inputs, attrs in (
        ("all", [X, Y], {}),
        ("middle", [X, Y, X], {"start_index": 1, "length": 2}),
        ("from-end", [X, Y], {"start_index": -2, "length": 1}),  # partial_sum reads the end of the row before
        ("one-input", [X], {"start_index": 2}),
        ("sequences", [Lod(X, [[1, 2]]), Lod(Y, [[1, 2]])], {"length": 3}),
    ):
        if (op, name) != ("partial_sum", "from-end"):
            CASES.append(Case(op, {"X": inputs}, attrs=attrs, grads="X", name=name))
    CASES.append(
        Case(op, {"X": [ints(2, 3, high=9), ints(2, 3, high=9, salt=1)]}, attrs={"length": 2}, name="integers")
    )
CASES += [
    Case(
        "coalesce_tensor",
        {"Input": [f32(2, 3), f32(4, salt=3)]},
        outputs="Output*2 FusedOutput",
        attrs=dict(attrs, dtype=5),
        inplace={"Output": "Input"},
        name=name,
        check="values",
        skip="FusedOutput",
        reason="real Fluid does not infer its shape",
    )
    for name, attrs in (("copies", {"copy_data": True}), ("constants", {"set_constant": True, "constant": 0.5}))
]

# --- circular correlation
for name, x, y in (
    ("", f32(3, 7), f32(3, 3)),
    ("as-wide", f32(3, 7), f32(3, 7, salt=1)),
    ("one", f32(2, 4), f32(2, 1)),
    ("sequences", Lod(f32(3, 7), [[1, 2]]), Lod(f32(3, 5), [[1, 2]])),
):
    CASES.append(Case("conv_shift", {"X": x, "Y": y}, grads="X Y", name=name))

# --- negative log likelihood
LABEL = np.array([0, 3, 1])
for reduction in ("mean", "sum", "none"):
    attrs = {"reduction": reduction, "ignore_index": 1}
    weights = f32(4, low=0.1)
    CASES += [
        Case("nll_loss", {"X": X, "Label": LABEL}, "Out Total_weight", attrs, "X", name=reduction),
        Case(
            "nll_loss",
            {"X": X, "Label": LABEL, "Weight": weights},
            "Out Total_weight",
            {"reduction": reduction},
            "X",
            name=reduction + "-weighted",
        ),
        Case(
            "nll_loss",
            {"X": f32(2, 3, 2, 2), "Label": ints(2, 2, 2, high=3), "Weight": f32(3, low=0.1)},
            "Out Total_weight",
            attrs,
            "X",
            name=reduction + "-images",
        ),
    ]
CASES.append(
    Case(
        "nll_loss",
        {"X": X, "Label": np.array([1, 1, 1])},
        "Out Total_weight",
        {"ignore_index": 1},
        "X",
        name="all-ignored",
    )
)

# --- 8-bit integers. In images of several channels requantize also changes the layout, hence one channel
HALVES = ((np.arange(12).reshape(3, 4) - 6) / 2.0).astype("float32")
SIGNED, UNSIGNED = ints(3, 4, low=-100, high=100, dtype="int8"), ints(3, 4, high=200, dtype="uint8")
for name, x, attrs in (
    ("signed", X, {"Scale": 50.0, "is_negative_input": True}),
    ("halves", HALVES, {"is_negative_input": True}),
    ("saturated", HALVES * 100, {"is_negative_input": True}),
    ("unsigned", f32(3, 4, low=0.0), {"Scale": 300.0}),
    ("unsigned-saturated", HALVES * 100, {}),
    ("images", f32(2, 3, 2, 2), {"Scale": 50.0, "is_negative_input": True, "output_format": "NCHW"}),
):
    CASES.append(Case("quantize", {"Input": x}, "Output", dict(attrs, use_mkldnn=True), name=name))
for name, x in (("signed", SIGNED), ("unsigned", UNSIGNED), ("images", SIGNED.reshape(1, 1, 3, 4))):
    CASES.append(Case("dequantize", {"Input": x}, "Output", {"Scale": 50.0, "use_mkldnn": True}, name=name))
for name, x, before, after in (
    ("down", SIGNED, 50.0, 25.0),
    ("up", SIGNED, 50.0, 125.0),
    ("unsigned", UNSIGNED, 50.0, 70.0),
):
    attrs = {"Scale_in": before, "Scale_out": after, "use_mkldnn": True}
    CASES.append(Case("requantize", {"Input": x.reshape(1, 1, 3, 4)}, "Output", attrs, name=name))
CASES += [
    Case("dequantize_abs_max", {"X": SIGNED, "Scale": f32(1, low=0.5)}, attrs={"max_range": 127.0}),
    Case("dequantize_abs_max", {"X": SIGNED, "Scale": f32(1, low=0.5)}, attrs={"max_range": 7.0}, name="4-bit"),
    Case("dequantize_log", {"X": SIGNED, "Dict": f32(128)}),
    Case("dequantize_log", {"X": np.int8([[-128, -1, 0, 127]]), "Dict": f32(128)}, name="ends"),
]


# --- inplace_abn overwrites its input
def abn_layer(act, **arguments):
    def inplace_abn(fluid, x):
        shifted = fluid.layers.scale(x, 2.0, bias=0.1)
        scale = fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0), name="scale_8")
        normalized = fluid.layers.inplace_abn(shifted, act=act, param_attr=scale, **arguments)
        return fluid.layers.tanh(normalized)  # the gradient writes into the normalized variable

    inplace_abn.__name__ = "_".join(["inplace_abn", str(act)] + sorted(arguments))
    return inplace_abn


for act, arguments in (
    (None, {}),
    ("identity", {"is_test": True}),
    ("leaky_relu", {"act_alpha": 0.2}),
    ("elu", {"act_alpha": 0.5, "momentum": 0.7}),
    ("elu", {"act_alpha": 0.5, "data_layout": "NHWC"}),
    ("leaky_relu", {"use_global_stats": True, "act_alpha": 0.3, "moving_variance_name": "variance_8"}),
):
    layer_case(CASES, grads="is_test" not in arguments, x=f32(4, 3, 2, 3))(abn_layer(act, **arguments))

# --- ids of a table in parts
IDS = [np.array([[5], [2], [8]]), np.array([[2], [3]])]


@layer_case(CASES, grads=False, a=IDS[0], b=IDS[1])
def ids_of_two_parts(fluid, a, b):
    block = fluid.default_main_program().global_block()
    parts = [block.create_var(name="part_%d" % i, dtype="int64", shape=[-1, 1]) for i in range(2)]
    block.append_op(type="split_ids", inputs={"Ids": [a, b]}, outputs={"Out": parts})
    return [fluid.layers.cast(part, "int32") for part in parts]


for name, ids, rows, values in (
    ("", IDS, [np.array([[2], [8]]), np.array([[3], [5]])], [f32(2, 2), f32(2, 2, salt=1)]),
    ("one", IDS[1:], [np.array([[3], [2]])], [f32(2, 3)]),
):
    parts = {"Ids": ids, "Rows": rows, "X": values}
    CASES.append(Case("merge_ids", parts, "Out*%d" % len(ids), name=name))
