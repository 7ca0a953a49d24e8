"""Pad, pad2d, pad_constant_like, unfold, and their layers."""

import numpy as np

from golden.case import Case, f32, f64, ints, layer_case


def _unfold(x, kernel_sizes, grads="X", strides=(1, 1), paddings=(0, 0, 0, 0), dilations=(1, 1)):
    attrs = {
        "kernel_sizes": list(kernel_sizes),
        "strides": list(strides),
        "paddings": list(paddings),
        "dilations": list(dilations),
    }
    return Case("unfold", {"X": x}, outputs="Y", attrs=attrs, grads=grads)


CASES = [
    Case("pad", {"X": f32(2, 3)}, attrs={"paddings": [0, 1, 2, 0], "pad_value": 1.5}, grads="X"),
    Case("pad", {"X": f64(3)}, attrs={"paddings": [2, 2]}),
    Case("pad", {"X": f32(2, 1, 2)}, attrs={"paddings": [0, 0, 1, 1, 0, 3], "pad_value": -1.0}, grads="X"),
    Case("pad_constant_like", {"X": f32(4, 5), "Y": f32(2, 3)}, attrs={"pad_value": 0.5}, grads="Y"),
    Case("pad_constant_like", {"X": f32(2, 3), "Y": f32(2, 3, salt=1)}, grads="Y"),
    Case("pad_constant_like", {"X": f64(2, 3, 4), "Y": f64(1, 3, 2)}),
    Case("pad2d", {"X": f32(2, 3, 4, 5)}, attrs={"paddings": [1, 2, 0, 3], "pad_value": 2.0}, grads="X"),
    Case("pad2d", {"X": f32(2, 3, 4, 5)}, attrs={"paddings": [1, 2, 3, 1], "mode": "reflect"}, grads="X"),
    Case("pad2d", {"X": f32(2, 3, 4, 5)}, attrs={"paddings": [1, 2, 0, 3], "mode": "edge"}, grads="X"),
    Case("pad2d", {"X": f32(2, 3, 4, 5)}, attrs={"paddings": [1, 2, 0, 3], "data_format": "NHWC"}, grads="X"),
    Case(
        "pad2d",
        {"X": f32(2, 3, 4, 5)},
        attrs={"paddings": [2, 1, 1, 3], "mode": "reflect", "data_format": "NHWC"},
        grads="X",
    ),
    Case("pad2d", {"X": f64(1, 3, 4, 2)}, attrs={"paddings": [2, 1, 1, 3], "mode": "edge", "data_format": "NHWC"}),
    Case("pad2d", {"X": f32(1, 1, 1, 1)}, attrs={"paddings": [1, 1, 1, 1], "mode": "edge"}, grads="X"),
    Case("pad2d", {"X": ints(1, 2, 2, 2, high=9)}, attrs={"paddings": [1, 0, 0, 1], "pad_value": 7.0}),
    _unfold(f32(2, 3, 4, 5), (2, 3)),
    _unfold(f32(2, 1, 5, 5), (3, 3), strides=(2, 1), paddings=(1, 0, 1, 2)),
    _unfold(f64(1, 2, 6, 5), (2, 2), grads="", dilations=(2, 1), paddings=(1, 1, 1, 1)),
]


@layer_case(CASES, x=f32(2, 3))
def pad_layer(fluid, x):
    return fluid.layers.pad(x, paddings=[0, 1, 1, 2], pad_value=3)


@layer_case(CASES, x=f32(4, 5), y=f32(2, 3))
def pad_constant_like_layer(fluid, x, y):
    return fluid.layers.pad_constant_like(x, y, pad_value=1.0)


@layer_case(CASES, x=f32(2, 2, 3, 4))
def pad2d_layer(fluid, x):
    return [
        fluid.layers.pad2d(x, [1, 1, 2, 0], pad_value=1.0),
        fluid.layers.pad2d(x, paddings=[1, 0, 0, 1], mode="edge"),
        fluid.layers.pad2d(x, [1, 1, 2, 2], mode="reflect", data_format="NCHW"),
    ]


@layer_case(CASES, x=f32(2, 2, 3, 4))
def pad2d_layer_with_computed_paddings(fluid, x):
    paddings = fluid.layers.assign(np.array([1, 0, 2, 1], "int32"))
    # Real Fluid takes the shape to be that of x, so only the sum is compared.
    return fluid.layers.reduce_sum(fluid.layers.square(fluid.layers.pad2d(x, paddings, pad_value=2.0)))


@layer_case(CASES, x=f32(2, 2, 5, 4))
def unfold_layer(fluid, x):
    return [
        fluid.layers.unfold(x, 2),
        fluid.layers.unfold(x, [3, 2], strides=2, paddings=1, dilations=1),
        fluid.layers.unfold(x, [2, 2], paddings=[1, 0]),
    ]
