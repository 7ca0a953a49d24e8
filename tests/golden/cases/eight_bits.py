"""Operators on 8-bit integers, as passes for MKL-DNN put them into saved models.

Recorded on a CPU with VNNI instructions, where sums are exact. Scales avoid results halfway between two integers.
"""

import numpy as np

from golden.case import Case, f32, ints

CASES = []
SIGNED = ints(2, 4, 5, 5, low=-100, high=100, dtype="int8")
UNSIGNED = ints(2, 4, 5, 5, high=200, dtype="uint8")
WEIGHT, BIAS = f32(6, 4, 3, 3), f32(6)
EACH = [90.0, 80.0, 70.0, 100.0, 60.0, 110.0]
WINDOW = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1, "data_format": "NCHW"}


def convolution(name, x=SIGNED, w=WEIGHT, bias=BIAS, residual=None, **attrs):
    inputs = {"Input": x, "Filter": w}
    if bias is not None:
        inputs["Bias"] = bias
    if residual is not None:
        inputs["ResidualData"] = residual
    given = dict(WINDOW, Scale_in=40.0, Scale_weights=[90.0], Scale_out=9.0, use_mkldnn=True, is_test=True)
    given.update(attrs, fuse_residual_connection=residual is not None)
    CASES.append(Case("conv2d", inputs, "Output", given, name=name))


convolution("plain", bias=None)
convolution("bias")
convolution("unsigned", x=UNSIGNED)
convolution("each-channel", Scale_weights=EACH)
convolution("float", Scale_weights=EACH, force_fp32_output=True)
convolution("relu", Scale_weights=EACH, fuse_activation="relu")
convolution("relu-float", x=UNSIGNED, fuse_activation="relu", force_fp32_output=True)
convolution("relu6", fuse_activation="relu6", fuse_alpha=54.0)
convolution("stride", strides=[2, 2], paddings=[0, 0])
convolution("groups", w=f32(6, 2, 3, 3), groups=2, Scale_weights=EACH)
convolution("depthwise", w=f32(4, 1, 3, 3), bias=f32(4), groups=4)
convolution("saturated", Scale_out=200.0)
convolution("residual", residual=ints(2, 6, 5, 5, low=-100, high=100, dtype="int8"), Scale_in_eltwise=21.0)
convolution(
    "residual-relu",
    residual=ints(2, 6, 5, 5, high=200, dtype="uint8"),
    Scale_in_eltwise=21.0,
    fuse_activation="relu",
    Scale_weights=EACH,
)


def product(name, x, w, bias=None, **attrs):
    inputs = {"Input": x, "W": w}
    if bias is not None:
        inputs["Bias"] = bias
    given = dict(in_num_col_dims=1, Scale_in=40.0, Scale_weights=[90.0], Scale_out=9.0, use_mkldnn=True)
    given.update(attrs)
    CASES.append(Case("fc", inputs, "Out", given, name=name))


ROWS, MATRIX = ints(3, 8, low=-100, high=100, dtype="int8"), f32(8, 6)
product("bias", ROWS, MATRIX, BIAS)
product("unsigned", ints(3, 8, high=200, dtype="uint8"), MATRIX, BIAS)
product("each-column", ROWS, MATRIX, BIAS, Scale_weights=EACH)
product("float", ROWS, MATRIX, BIAS, Scale_weights=EACH, force_fp32_output=True)
product("relu", ROWS, MATRIX, BIAS, activation_type="relu")

for name, x in (("signed", SIGNED), ("unsigned", UNSIGNED)):
    for kind in ("max", "avg"):
        attrs = {"pooling_type": kind, "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "use_mkldnn": True}
        CASES.append(Case("pool2d", {"X": x}, "Out", attrs, name=name + "-" + kind))
        CASES.append(
            Case("pool2d", {"X": x}, "Out", dict(attrs, ksize=[3, 3], paddings=[1, 1]), name=name + "-padded-" + kind)
        )
        CASES.append(Case("pool2d", {"X": x}, "Out", dict(attrs, global_pooling=True), name=name + "-global-" + kind))
    for type, outputs, attrs in (
        ("concat", "Out", {"axis": 1}),
        ("transpose2", "Out XShape", {"axis": [0, 2, 3, 1]}),
        ("reshape2", "Out XShape", {"shape": [2, 100]}),
    ):
        inputs, given = {"X": [x, x] if type == "concat" else x}, dict(attrs, use_mkldnn=True)
        CASES.append(Case(type, inputs, outputs, given, name=name, skip="XShape", reason="XShape has no values"))

LEFT, RIGHT = ints(2, 3, 4, low=-9, high=9, dtype="int8"), ints(2, 4, 5, low=-9, high=9, dtype="int8", salt=1)
for name, x, y, attrs in (
    ("plain", LEFT, RIGHT, {}),
    ("transposed", LEFT, np.ascontiguousarray(RIGHT.transpose(0, 2, 1)), {"transpose_Y": True, "alpha": 0.5}),
    ("float", LEFT, RIGHT, {"force_fp32_output": True}),
):
    given = dict({"Scale_x": 10.0, "Scale_y": 5.0, "Scale_out": 7.0, "use_mkldnn": True}, **attrs)
    CASES.append(Case("matmul", {"X": x, "Y": y}, "Out", given, name="8-bit-" + name))
X, Y = f32(2, 3, 4, 5), f32(2, 3, 5, 6)
attrs = {"fused_transpose_Out": [0, 2, 1, 3], "fused_reshape_Out": [0, 0, 18], "use_mkldnn": True}
CASES.append(Case("matmul", {"X": X, "Y": Y}, "Out", attrs, name="fused-transpose"))
