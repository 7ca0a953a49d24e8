"""Reshape, transpose, squeeze, unsqueeze, flatten, and their layers."""

import numpy as np

from golden.case import Case, f32, f64, ints, layer_case


def _remembering(op, x, grads="X", **options):
    """A case of a ``...2`` op; XShape has no elements to compare."""
    inputs = dict(options.pop("inputs", {}), X=x)
    return Case(
        op, inputs, outputs="Out XShape", grads=grads, skip="XShape", reason="XShape only has a shape", **options
    )


def _i32(*values):
    return np.array(values, "int32")


CASES = [
    Case("reshape", {"X": f32(2, 6)}, attrs={"shape": [3, 4]}, grads="X"),
    Case("reshape", {"X": f32(2, 6)}, attrs={"shape": [0, 3, -1]}, grads="X"),
    Case("reshape", {"X": f64(4)}, attrs={"shape": [1, 2, 1, 2]}),
    Case("reshape", {"X": ints(2, 3, high=9)}, attrs={"shape": [-1]}),
    Case("reshape", {"X": f32(2, 6), "Shape": _i32(4, 3)}, attrs={"shape": [-1, 3]}, grads="X", name="shape-input"),
    _remembering("reshape2", f32(2, 3, 4), attrs={"shape": [-1, 8]}),
    _remembering("reshape2", f32(2, 3, 4), attrs={"shape": [0, 0, 2, 2]}),
    _remembering("reshape2", f32(1), attrs={"shape": [1, 1, 1]}),
    _remembering("reshape2", f64(6, 1), grads="", attrs={"shape": [2, -1]}),
    _remembering("reshape2", ints(3, 2, high=5, dtype="int32"), grads="", attrs={"shape": [6, 1]}),
    _remembering("reshape2", f32(2, 6), inputs={"Shape": _i32(3, 4)}, name="shape-input"),
    _remembering("reshape2", f32(2, 6), inputs={"Shape": _i32(6, 2)}, attrs={"shape": [-1, 2]}, name="shape-and-attr"),
    _remembering(
        "reshape2",
        f32(2, 6),
        inputs={"ShapeTensor": [_i32(3), _i32(-1)]},
        attrs={"shape": [-1, 4]},
        name="shape-tensors",
    ),
    Case("transpose", {"X": f32(2, 3, 4)}, attrs={"axis": [2, 0, 1]}, grads="X"),
    _remembering("transpose2", f32(2, 3, 4, 5), attrs={"axis": [0, 2, 3, 1]}),
    _remembering("transpose2", f64(3, 2), grads="", attrs={"axis": [1, 0]}),
    _remembering("transpose2", f32(3), attrs={"axis": [0]}),
    Case("squeeze", {"X": f32(1, 3, 1, 2)}, attrs={"axes": [0]}, grads="X"),
    Case("squeeze", {"X": f32(1, 3, 1, 2)}, attrs={"axes": []}, grads="X"),
    _remembering("squeeze2", f32(1, 3, 1, 2), attrs={"axes": [0, 2]}),
    _remembering("squeeze2", f32(1, 3, 1, 2), attrs={"axes": [-2]}),
    _remembering("squeeze2", f64(3, 1), grads="", attrs={"axes": []}),
    _remembering("squeeze2", ints(3, 1, high=7), grads="", attrs={"axes": [1]}),
    Case("unsqueeze", {"X": f32(3, 2)}, attrs={"axes": [1]}, grads="X"),
    _remembering("unsqueeze2", f32(3, 2), attrs={"axes": [0, 3]}),
    _remembering("unsqueeze2", f32(3, 2), attrs={"axes": [2, 0]}),
    _remembering("unsqueeze2", f32(3, 2), attrs={"axes": [-1, -1]}),
    _remembering("unsqueeze2", f32(3, 2), attrs={"axes": [-3, 1]}),
    _remembering("unsqueeze2", ints(4, high=7), grads="", attrs={"axes": [1]}),
    _remembering("unsqueeze2", f32(3, 2), inputs={"AxesTensor": _i32(0, 2)}, name="axes-input"),
    _remembering("unsqueeze2", f32(3, 2), inputs={"AxesTensorList": [_i32(1), _i32(-1)]}, name="axes-tensors"),
    Case("flatten", {"X": f32(2, 3, 4)}, attrs={"axis": 2}, grads="X"),
    _remembering("flatten2", f32(2, 3, 4), attrs={"axis": 1}),
    _remembering("flatten2", f32(2, 3, 4), attrs={"axis": 0}),
    _remembering("flatten2", f32(2, 3, 4), attrs={"axis": 3}),
    _remembering("flatten2", f64(5), grads="", attrs={"axis": 1}),
]


@layer_case(CASES, x=f32(2, 3, 4))
def reshape_layer(fluid, x):
    return [fluid.layers.reshape(x, [-1, 0, 2]), fluid.layers.reshape(x, shape=(6, 4), act="tanh", name="named")]


@layer_case(CASES, x=f32(2, 6))
def reshape_layer_in_place(fluid, x):
    y = fluid.layers.scale(x, 2.0)
    return fluid.layers.reshape(y, [3, 4], inplace=True)


@layer_case(CASES, x=f32(2, 6))
def reshape_layer_with_actual_shape(fluid, x):
    actual = fluid.layers.fill_constant([2], "int32", 0)
    actual = fluid.layers.assign(np.array([4, 3], "int32"), actual)
    return fluid.layers.reshape(x, [-1, 3], actual_shape=actual)


@layer_case(CASES, x=f32(2, 6))
def reshape_layer_to_computed_shape(fluid, x):
    rows = fluid.layers.slice(fluid.layers.shape(x), [0], [0], [1])
    return [
        fluid.layers.reshape(x, [rows, 3, 2]),
        fluid.layers.reshape(x, fluid.layers.assign(np.array([3, 4], "int32"))),
    ]


@layer_case(CASES, x=f32(2, 6), wanted=np.array([4, 3], "int32"))
def reshape_layer_to_fed_shape(fluid, x, wanted):
    return fluid.layers.reshape(fluid.layers.scale(x, 3.0), wanted)


@layer_case(CASES, x=f32(2, 3, 4))
def transpose_layer(fluid, x):
    return fluid.layers.transpose(x, perm=[1, 0, 2])


@layer_case(CASES, x=f32(2, 1, 4))
def squeeze_and_unsqueeze_layers(fluid, x):
    squeezed = fluid.layers.squeeze(x, axes=[1])
    return [squeezed, fluid.layers.unsqueeze(squeezed, axes=[0, 2]), fluid.layers.unsqueeze(squeezed, axes=1)]


@layer_case(CASES, x=f32(2, 4))
def unsqueeze_layer_with_computed_axes(fluid, x):
    one = fluid.layers.fill_constant([1], "int32", 1)
    axes = fluid.layers.assign(np.array([0, 2], "int32"))
    return [fluid.layers.unsqueeze(x, axes=[0, one]), fluid.layers.unsqueeze(x, axes=axes)]


@layer_case(CASES, x=f32(2, 3, 4))
def flatten_layer(fluid, x):
    return [fluid.layers.flatten(x), fluid.layers.flatten(x, axis=2)]


@layer_case(CASES, x=f64(2, 6))
def float64_keeps_its_width(fluid, x):
    layers = fluid.layers
    halves = layers.split(layers.transpose(layers.reshape(x, [4, 3]), [1, 0]), 2, dim=1)
    joined = layers.concat([halves[0], layers.pad(halves[1], [0, 0, 1, 0]), layers.expand(halves[0], [1, 2])], axis=1)
    picked = layers.gather(joined, layers.assign(np.array([2, 0], "int32")))
    return layers.stack(
        [layers.slice(picked, [1], [1], [5]), layers.reverse(layers.crop_tensor(picked, [2, 4], [0, 2]), 1)]
    )
