"""Cosine similarity, bilinear forms, feature maps that agree, and position encodings."""

import numpy as np

from golden.case import Case, Lod, distinct, f32, f64, layer_case

CASES = [
    Case("cos_sim", {"X": f32(4, 5), "Y": f32(4, 5, salt=1)}, outputs="Out XNorm YNorm", grads="X Y"),
    Case("cos_sim", {"X": f32(4, 5), "Y": f32(1, 5, salt=1)}, outputs="Out XNorm YNorm", grads="X Y"),
    Case("cos_sim", {"X": f32(2, 3, 2), "Y": f32(1, 3, 2)}, outputs="Out XNorm YNorm", grads="X Y"),
    Case(
        "cos_sim",
        {
            "X": np.array([[0, 0], [1e-5, 0], [1e-3, 0]], "float32"),
            "Y": np.array([[3, 4], [-1, -1], [1, 1]], "float32"),
        },
        outputs="Out XNorm YNorm",
        grads="X Y",
        name="tiny",
    ),
    Case(
        "bilinear_tensor_product",
        {"X": f32(2, 3), "Y": f32(2, 4), "Weight": f32(5, 3, 4), "Bias": f32(1, 5)},
        grads="X Y Weight Bias",
    ),
    Case(
        "bilinear_tensor_product", {"X": f32(3, 2), "Y": f32(3, 2, salt=1), "Weight": f32(1, 2, 2)}, grads="X Y Weight"
    ),
    Case("bilinear_tensor_product", {"X": f64(2, 3), "Y": f64(2, 4), "Weight": f64(2, 3, 4)}),
    Case("fsp", {"X": f32(2, 3, 2, 2), "Y": f32(2, 4, 2, 2)}, grads="X Y"),
    Case("fsp", {"X": f32(1, 2, 3, 4), "Y": f32(1, 2, 3, 4, salt=1)}, grads="X Y"),
    Case("similarity_focus", {"X": distinct(2, 3, 2, 2)}, attrs={"axis": 1, "indexes": [0]}),
    Case("similarity_focus", {"X": distinct(2, 3, 2, 4)}, attrs={"axis": 1, "indexes": [0, 2]}),
    Case("similarity_focus", {"X": distinct(2, 3, 2, 4)}, attrs={"axis": 2, "indexes": [0, 1]}),
    Case("similarity_focus", {"X": distinct(2, 3, 2, 4)}, attrs={"axis": 3, "indexes": [1]}),
    Case("add_position_encoding", {"X": f32(2, 3, 4)}, attrs={"alpha": 0.5, "beta": 2.0}, grads="X"),
    Case("add_position_encoding", {"X": f32(1, 5, 8)}, attrs={"alpha": 1.0, "beta": 1.0}, grads="X"),
    Case("add_position_encoding", {"X": f32(1, 3, 2)}, attrs={"alpha": 0.5, "beta": 2.0}),
    Case(
        "cvm",
        {"X": Lod(f32(4, 5, low=0, high=9), [[1, 0, 3]]), "CVM": f32(3, 2, low=0)},
        outputs="Y",
        attrs={"use_cvm": False},
        grads="X",
        name="of sequences",
    ),
    Case(
        "cvm", {"X": f32(3, 5, low=0, high=9), "CVM": f32(3, 2, low=0)}, outputs="Y", attrs={"use_cvm": True}, grads="X"
    ),
    Case(
        "cvm",
        {"X": f32(3, 5, low=0, high=9), "CVM": f32(3, 2, low=0)},
        outputs="Y",
        attrs={"use_cvm": False},
        grads="X",
    ),
]


@layer_case(CASES, x=f32(3, 4), y=f32(3, 4, salt=1))
def cos_sim_layer(fluid, x, y):
    return fluid.layers.cos_sim(x, y)


@layer_case(CASES, x=f32(3, 4), y=f32(3, 2))
def bilinear_tensor_product_layer(fluid, x, y):
    return fluid.layers.bilinear_tensor_product(x, y, 5, act="tanh")


@layer_case(CASES, x=f32(3, 4), y=f32(3, 2))
def bilinear_tensor_product_layer_without_bias(fluid, x, y):
    return fluid.layers.bilinear_tensor_product(
        x, y, 5, name="form", param_attr=fluid.ParamAttr(name="w"), bias_attr=False
    )


@layer_case(CASES, x=f32(2, 3, 2, 2), y=f32(2, 4, 2, 2))
def fsp_matrix_layer(fluid, x, y):
    return fluid.layers.fsp_matrix(x, y)


@layer_case(CASES, grads=False, x=distinct(2, 3, 2, 4))
def similarity_focus_layer(fluid, x):
    return fluid.layers.similarity_focus(x, 1, [0, 1])


@layer_case(CASES, x=f32(2, 3, 4))
def add_position_encoding_layer(fluid, x):
    return fluid.layers.add_position_encoding(x, 0.7, 0.3)


@layer_case(CASES, x=f32(3, 4, low=0), cvm=f32(3, 2, low=0))
def continuous_value_model_layer(fluid, x, cvm):
    cvm.stop_gradient = True
    return fluid.layers.continuous_value_model(x, cvm, use_cvm=False)
