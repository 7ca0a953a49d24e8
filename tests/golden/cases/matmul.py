"""mul, matmul and smaller products; the fc layer."""

from golden.case import Case, Lod, f32, f64, ints, layer_case

CASES = [
    Case("mul", {"X": f32(2, 3), "Y": f32(3, 4)}, grads="X Y"),
    Case(
        "mul",
        {"X": f32(2, 3, 4), "Y": f32(4, 3, 2)},
        attrs={"x_num_col_dims": 1, "y_num_col_dims": 2},
        grads="X Y",
        name="folds",
    ),
    Case(
        "mul",
        {"X": f32(2, 2, 3), "Y": f32(3, 2, 2)},
        attrs={"x_num_col_dims": 2, "y_num_col_dims": 1},
        grads="X Y",
        name="keeps dims",
    ),
    Case("mul", {"X": f32(2, 3, 1, 1), "Y": f32(3, 1)}, grads="X Y", name="dims of size 1"),
    Case("mul", {"X": f32(1, 1), "Y": f32(1, 1)}, grads="X Y", name="one element"),
    Case("mul", {"X": Lod(f32(5, 2), [[2, 3]]), "Y": f32(2, 3)}, grads="X Y", name="sequence"),
]

# X shape, Y shape, attributes
for x, y, attrs in [
    ((2, 3), (3, 4), {}),
    ((3, 2), (3, 4), {"transpose_X": True}),
    ((2, 3), (4, 3), {"transpose_Y": True, "alpha": 0.5}),
    ((3, 2), (4, 3), {"transpose_X": True, "transpose_Y": True, "alpha": -2.0}),
    ((3,), (3,), {}),
    ((3,), (3, 2), {}),
    ((2, 3), (3,), {}),
    ((3,), (2, 3), {"transpose_Y": True}),
    ((3, 2), (3,), {"transpose_X": True}),
    ((3,), (2,), {"transpose_X": True, "transpose_Y": True}),
    ((1,), (1,), {}),
    ((2, 2, 3), (3, 4), {}),
    ((2, 3), (2, 3, 4), {}),
    ((2, 2, 3), (2, 3, 4), {}),
    ((2, 3, 2), (2, 4, 3), {"transpose_X": True, "transpose_Y": True}),
    ((2, 1, 2, 3), (2, 1, 4, 3), {"transpose_Y": True}),
    ((6, 2, 2), (2, 3, 2, 3), {}),
    ((2, 2, 3), (3,), {}),
    ((3,), (2, 3, 4), {}),
    ((2, 3, 1, 4), (2, 3, 4, 1), {"alpha": 2.0}),
]:
    CASES.append(
        Case(
            "matmul",
            {"X": f32(*x), "Y": f32(*y, salt=1)},
            attrs=attrs,
            grads="X Y",
            name="%s by %s%s" % (x, y, "".join(" " + key for key in sorted(attrs))),
        )
    )

CASES += [
    Case("matmul", {"X": f64(2, 3), "Y": f64(3, 4)}, attrs={"alpha": 2.0}, name="float64"),
    Case("matmul", {"X": Lod(f32(5, 2), [[2, 3]]), "Y": f32(2, 3)}, grads="X Y", name="sequence"),
    Case("bmm", {"X": f32(2, 2, 3), "Y": f32(2, 3, 4)}, grads="X Y"),
    Case(
        "addmm",
        {"Input": f32(2, 4), "X": f32(2, 3), "Y": f32(3, 4)},
        attrs={"Alpha": 2.0, "Beta": 0.5},
        grads="Input X Y",
    ),
    Case("addmm", {"Input": f32(1, 4), "X": f32(2, 3), "Y": f32(3, 4)}, grads="Input X Y", name="one row"),
    Case("dot", {"X": f32(2, 3), "Y": f32(2, 3, salt=1)}, grads="X Y"),
    Case("dot", {"X": f32(3), "Y": f32(3, salt=1)}, grads="X Y", name="vectors"),
    Case("dot", {"X": ints(3, high=5), "Y": ints(3, high=5, salt=1)}, name="int64"),
    Case("kron", {"X": f32(2, 3), "Y": f32(2, 2)}, grads="X Y"),
    Case("kron", {"X": f32(2, 3), "Y": f32(2)}, grads="X Y", name="vector"),
    Case("cross", {"X": f32(3, 2), "Y": f32(3, 2, salt=1)}, grads="X Y"),
    Case("cross", {"X": f32(2, 3, 3), "Y": f32(2, 3, 3, salt=1)}, attrs={"dim": 2}, grads="X Y", name="dim"),
    Case("trace", {"Input": f32(3, 3)}, grads="Input"),
    Case("trace", {"Input": f32(2, 3, 4)}, grads="Input", name="last dims"),
    Case("trace", {"Input": f32(2, 3, 4)}, attrs={"offset": 1, "dim1": 0, "dim2": 2}, grads="Input", name="offset"),
    Case("trace", {"Input": f32(2, 3, 4)}, attrs={"offset": -1}, grads="Input", name="below"),
]


@layer_case(CASES, x=f32(4, 13))
def fc(fluid, x):
    return fluid.layers.fc(x, 5)


@layer_case(CASES, x=f32(4, 13))
def fc_named_without_bias(fluid, x):
    return fluid.layers.fc(input=x, size=5, act="tanh", bias_attr=False, name="hidden")


@layer_case(CASES, x=f32(2, 3, 4, 2))
def fc_flattens(fluid, x):
    layers = fluid.layers
    return [
        layers.fc(x, 5),
        layers.fc(x, 5, num_flatten_dims=2),
        layers.fc(x, 5, num_flatten_dims=-1, act="relu"),
        layers.fc(x, 1, num_flatten_dims=3),
    ]


@layer_case(CASES, x=f32(4, 3), y=f32(4, 2))
def fc_of_several_inputs(fluid, x, y):
    layers = fluid.layers
    return [
        layers.fc([x, y], 5),
        layers.fc([x, y], 5, param_attr=["first", "second"], bias_attr="third", act="relu"),
        layers.fc([x, y], 2, param_attr=fluid.ParamAttr(learning_rate=0.5), name="both"),
    ]


@layer_case(CASES, x=f32(4, 3))
def fc_shares_a_parameter(fluid, x):
    shared = fluid.ParamAttr(name="shared")
    hidden = fluid.layers.fc(x, 3, param_attr=shared, act="sigmoid")
    return fluid.layers.fc(hidden, 3, param_attr=shared, bias_attr=fluid.ParamAttr(name="offset"))


@layer_case(CASES, x=Lod(f32(5, 3), [[2, 3]]))
def fc_of_a_sequence(fluid, x):
    return fluid.layers.fc(x, 2, act="tanh")


@layer_case(CASES, x=f32(2, 3), y=f32(3, 4), batch=f32(2, 3, 4), cube=f32(3, 4, 2))
def product_layers(fluid, x, y, batch, cube):
    layers = fluid.layers
    return [
        layers.mul(x, y),
        layers.mul(batch, cube, 1, 2, name="folded"),
        layers.matmul(x, y),
        layers.matmul(batch, y, transpose_y=True, alpha=0.5, name="scaled"),
        layers.matmul(batch, batch, True),
    ]


@layer_case(CASES, x=f32(3, 3), y=f32(3, 3, salt=1), batch=f32(2, 3, 3))
def smaller_product_layers(fluid, x, y, batch):
    layers = fluid.layers
    return [
        layers.bmm(batch, batch),
        layers.addmm(x, x, y, alpha=2.0, beta=0.5, name="added"),
        layers.dot(x, y),
        layers.cross(x, y),
        layers.cross(x, y, dim=1),
        layers.kron(x, y),
        layers.trace(batch, 1, 0, 2),
        layers.dist(x, y, 3),
    ]


@layer_case(CASES, x=f64(2, 3), y=f64(3, 4))
def product_in_float64(fluid, x, y):
    return fluid.layers.matmul(x, y, alpha=2.0)
