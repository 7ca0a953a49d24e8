"""Slice, strided_slice, crop, crop_tensor, reverse, flip, roll, and their layers."""

import numpy as np

from golden.case import Case, f32, f64, ints, layer_case


def _i32(*values):
    return np.array(values, "int32")


def _slice(x, inputs=None, name="", grads="Input", **attrs):
    return Case("slice", dict(inputs or {}, Input=x), attrs=attrs, grads=grads, name=name)


def _strided(x, inputs=None, name="", grads="Input", **attrs):
    attrs.setdefault("infer_flags", [1] * len(attrs["axes"]))
    return Case("strided_slice", dict(inputs or {}, Input=x), attrs=attrs, grads=grads, name=name)


CASES = [
    _slice(f32(4, 5, 6), axes=[0, 2], starts=[1, 0], ends=[3, 4]),
    _slice(f32(4, 5, 6), axes=[1], starts=[-3], ends=[-1]),
    _slice(f32(4, 5), axes=[0, 1], starts=[2, -100], ends=[100, 100]),
    _slice(f64(6), grads="", axes=[0], starts=[1], ends=[4]),
    _slice(ints(4, 3, high=9), grads="", axes=[0], starts=[0], ends=[2]),
    _slice(f32(4, 5, 6), axes=[0, 1], starts=[0, 3], ends=[1, 4], decrease_axis=[0]),
    _slice(f32(4, 5, 6), axes=[0, 1], starts=[0, 3], ends=[1, 4], decrease_axis=[0, 1]),
    _slice(f32(4), axes=[0], starts=[-1], ends=[100], decrease_axis=[0]),
    _slice(
        f32(4, 5),
        inputs={"StartsTensor": _i32(1, 2)},
        axes=[0, 1],
        ends=[3, 4],
        infer_flags=[-1, -1],
        name="starts-input",
    ),
    _slice(
        f32(4, 5),
        inputs={"StartsTensor": _i32(1, 2), "EndsTensor": _i32(-1, 4)},
        axes=[0, 1],
        infer_flags=[-1, -1],
        name="starts-and-ends-inputs",
    ),
    _slice(
        f32(4, 5, 6),
        inputs={"StartsTensorList": [_i32(1), _i32(2)]},
        axes=[0, 1],
        starts=[-1, 2],
        ends=[3, 4],
        infer_flags=[-1, 1],
        name="starts-tensors",
    ),
    _slice(
        f32(4, 5, 6),
        inputs={"EndsTensorList": [_i32(3), _i32(3)]},
        axes=[0, 1],
        starts=[2, 2],
        ends=[-1, 3],
        infer_flags=[-1, 1],
        decrease_axis=[0],
        name="ends-tensors",
    ),
    _strided(f32(4, 5, 6), axes=[0, 1], starts=[0, 1], ends=[3, 10], strides=[1, 2]),
    _strided(f32(4, 5, 6), axes=[0, 1], starts=[3, -1], ends=[0, -10], strides=[-1, -2]),
    _strided(f32(6, 2), axes=[0], starts=[4], ends=[0], strides=[-2]),
    _strided(f32(6, 2), axes=[0], starts=[5], ends=[0], strides=[-3]),
    _strided(f32(6, 2), axes=[0], starts=[3], ends=[-1], strides=[-1]),
    _strided(f64(7), grads="", axes=[0], starts=[-6], ends=[10], strides=[3]),
    _strided(ints(7, high=9), grads="", axes=[0], starts=[1], ends=[6], strides=[2]),
    _strided(f32(4, 5), inputs={"StartsTensor": _i32(1)}, axes=[0], ends=[4], strides=[2], name="starts-input"),
    _strided(
        f32(4, 5),
        inputs={"StartsTensorList": [_i32(1)]},
        axes=[0],
        starts=[-1],
        ends=[4],
        strides=[2],
        infer_flags=[-1],
        name="starts-tensors",
    ),
    Case("crop", {"X": f32(4, 5)}, attrs={"shape": [2, 3], "offsets": [0, 1]}, grads="X"),
    Case("crop", {"X": f32(3, 4, 5)}, attrs={"shape": [3, 2, 2], "offsets": [0, 2, 3]}, grads="X"),
    Case("crop", {"X": f32(4, 5)}, attrs={"shape": [-1, 3], "offsets": [0, 1]}),
    Case("crop", {"X": f32(4, 5), "Y": f32(2, 2)}, attrs={"offsets": [1, 3]}, grads="X", name="like"),
    Case("crop", {"X": f32(4, 5), "Offsets": _i32(2, 1)}, attrs={"shape": [2, 3]}, grads="X", name="offsets-input"),
    Case("crop_tensor", {"X": f32(4, 5)}, attrs={"shape": [2, 3], "offsets": [1, 1]}, grads="X"),
    Case("crop_tensor", {"X": f32(4, 5)}, attrs={"shape": [-1, 3], "offsets": [1, 2]}, grads="X"),
    Case("crop_tensor", {"X": f64(4, 5)}, attrs={"shape": [1, -1], "offsets": [3, 0]}),
    Case("crop_tensor", {"X": ints(4, 5, high=9)}, attrs={"shape": [2, 2], "offsets": [0, 0]}),
    Case(
        "crop_tensor", {"X": f32(4, 5), "Shape": _i32(3, 2)}, attrs={"offsets": [1, 1]}, grads="X", name="shape-input"
    ),
    Case(
        "crop_tensor", {"X": f32(4, 5), "Offsets": _i32(2, 1)}, attrs={"shape": [2, 3]}, grads="X", name="offsets-input"
    ),
    Case(
        "crop_tensor",
        {"X": f32(4, 5), "ShapeTensor": [_i32(2), _i32(3)]},
        attrs={"shape": [0, 3], "offsets": [1, 1]},
        grads="X",
        name="shape-tensors",
    ),
    Case(
        "crop_tensor",
        {"X": f32(4, 5), "OffsetsTensor": [_i32(2), _i32(0)]},
        attrs={"shape": [2, 3], "offsets": [-1, 0]},
        grads="X",
        name="offsets-tensors",
    ),
    Case("reverse", {"X": f32(3, 4)}, attrs={"axis": [0]}, grads="X"),
    Case("reverse", {"X": f64(3, 4, 2)}, attrs={"axis": [0, 2]}),
    Case("reverse", {"X": ints(5, high=9)}, attrs={"axis": [0]}),
    Case("reverse", {"X": f32(3, 4)}, attrs={"axis": [-1]}, grads="X"),
    Case("flip", {"X": f32(3, 4)}, attrs={"dims": [1]}, grads="X"),
    Case("flip", {"X": f32(3, 4)}, attrs={"dims": [0, -1]}, grads="X"),
    Case("roll", {"X": f32(3, 4)}, attrs={"shifts": [1], "dims": [0]}, grads="X"),
    Case("roll", {"X": f32(3, 4)}, attrs={"shifts": [-1, 6], "dims": [0, 1]}, grads="X"),
]


@layer_case(CASES, x=f32(4, 5, 6))
def slice_layer(fluid, x):
    return [fluid.layers.slice(x, axes=[0, 1], starts=[1, -2], ends=[3, 10]), fluid.layers.slice(x, [2], (0,), (1,))]


@layer_case(CASES, x=f32(4, 5))
def slice_layer_with_computed_bounds(fluid, x):
    one = fluid.layers.fill_constant([1], "int32", 1)
    ends = fluid.layers.assign(np.array([3, 4], "int32"))
    return [fluid.layers.slice(x, [0, 1], [one, 0], [3, 2]), fluid.layers.slice(x, [0, 1], [0, 1], ends)]


@layer_case(CASES, x=f32(4, 5), ends=np.array([3, 4], "int32"))
def slice_layer_with_fed_bounds(fluid, x, ends):
    return fluid.layers.scale(fluid.layers.slice(fluid.layers.scale(x, 2.0), [0, 1], [0, 1], ends), 3.0)


@layer_case(CASES, x=f32(6, 5))
def strided_slice_layer(fluid, x):
    two = fluid.layers.fill_constant([1], "int32", 2)
    return [
        fluid.layers.strided_slice(x, [0, 1], [0, 4], [6, 0], [2, -1]),
        fluid.layers.strided_slice(x, axes=[0], starts=[two], ends=[6], strides=[two]),
    ]


@layer_case(CASES, x=f32(4, 5), y=f32(2, 2))
def crop_layer(fluid, x, y):
    return [
        fluid.layers.crop(x, shape=[2, 3], offsets=[1, 0]),
        fluid.layers.crop(x, shape=y, offsets=[1, 1]),
        fluid.layers.crop(x, shape=[4, 2]),
    ]


@layer_case(CASES, x=f32(4, 5))
def crop_tensor_layer(fluid, x):
    two = fluid.layers.fill_constant([1], "int32", 2)
    box = fluid.layers.assign(np.array([2, 3], "int32"))
    return [
        fluid.layers.crop_tensor(x, shape=[2, -1], offsets=[0, 1]),
        fluid.layers.crop_tensor(x, shape=[two, 3]),
        fluid.layers.crop_tensor(x, shape=box, offsets=[two, 1]),
    ]


@layer_case(CASES, x=f32(3, 4))
def reverse_layer(fluid, x):
    return [fluid.layers.reverse(x, 0), fluid.layers.reverse(x, axis=[0, 1])]
