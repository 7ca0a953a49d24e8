"""Concat, split, stack, unstack, unbind, meshgrid, expand, expand_as, and their layers."""

import numpy as np

from golden.case import Case, f32, f64, ints, layer_case


def _i32(*values):
    return np.array(values, "int32")


CASES = [
    Case("concat", {"X": [f32(2, 3), f32(2, 1), f32(2, 2)]}, attrs={"axis": 1}, grads="X"),
    Case("concat", {"X": [f32(2, 3), f32(1, 3)]}, attrs={"axis": 0}, grads="X"),
    Case("concat", {"X": [f64(2, 2, 1), f64(2, 2, 3)]}, attrs={"axis": -1}),
    Case("concat", {"X": [f32(4)]}, grads="X"),
    Case("concat", {"X": [ints(2, high=5), ints(3, high=5)]}),
    Case("concat", {"X": [f32(2, 3), f32(2, 3, salt=1)], "AxisTensor": _i32(1)}, grads="X", name="axis-input"),
    Case("split", {"X": f32(4, 6)}, outputs="Out*3", attrs={"num": 3, "axis": 1}, grads="X"),
    Case("split", {"X": f32(4, 6)}, outputs="Out*2", attrs={"num": 2, "axis": 0}, grads="X"),
    Case("split", {"X": f64(4, 6)}, outputs="Out*3", attrs={"sections": [1, 3, 2], "axis": 1}),
    Case("split", {"X": f32(4, 6)}, outputs="Out*2", attrs={"sections": [2, -1], "axis": 1}, grads="X"),
    Case("split", {"X": ints(6, high=9)}, outputs="Out*2", attrs={"sections": [1, 5]}),
    Case("split", {"X": f32(4, 6), "AxisTensor": _i32(1)}, outputs="Out*2", attrs={"num": 2}, name="axis-input"),
    Case(
        "split",
        {"X": f32(4, 6), "SectionsTensorList": [_i32(4), _i32(2)]},
        outputs="Out*2",
        attrs={"sections": [-1, 2], "axis": 1},
        name="section-tensors",
    ),
    Case("stack", {"X": [f32(2, 3), f32(2, 3, salt=1)]}, outputs="Y", attrs={"axis": 0}, grads="X"),
    Case("stack", {"X": [f32(2, 3), f32(2, 3, salt=1)]}, outputs="Y", attrs={"axis": -1}, grads="X"),
    Case("stack", {"X": [f64(2, 3), f64(2, 3, salt=1), f64(2, 3, salt=2)]}, outputs="Y", attrs={"axis": 1}),
    Case("stack", {"X": [ints(3, high=5)]}, outputs="Y"),
    Case("unstack", {"X": f32(2, 3)}, outputs="Y*2", attrs={"axis": 0, "num": 2}, grads="X"),
    Case("unstack", {"X": f32(2, 3)}, outputs="Y*3", attrs={"axis": -1, "num": 3}, grads="X"),
    Case("unbind", {"X": f32(2, 3)}, outputs="Out*3", attrs={"axis": 1}, grads="X"),
    Case("unbind", {"X": f32(2, 3)}, outputs="Out*2", grads="X"),
    Case("meshgrid", {"X": [f32(2), f32(3)]}, outputs="Out*2", grads="X"),
    Case("meshgrid", {"X": [f32(2), f32(1), f32(4)]}, outputs="Out*3", grads="X"),
    Case("expand", {"X": f32(2, 3)}, attrs={"expand_times": [2, 1]}, grads="X"),
    Case("expand", {"X": f32(2, 1, 3)}, attrs={"expand_times": [1, 4, 2]}, grads="X"),
    Case("expand", {"X": f64(3)}, attrs={"expand_times": [3]}),
    Case("expand", {"X": ints(2, 2, high=5)}, attrs={"expand_times": [2, 2]}),
    Case("expand", {"X": f32(2, 3), "ExpandTimes": _i32(2, 2)}, grads="X", name="times-input"),
    Case(
        "expand",
        {"X": f32(2, 3), "expand_times_tensor": [_i32(3), _i32(2)]},
        attrs={"expand_times": [-1, 2]},
        grads="X",
        name="times-tensors",
    ),
]


@layer_case(CASES, x=f32(2, 3), y=f32(2, 4))
def concat_layer(fluid, x, y):
    return [fluid.layers.concat([x, y], axis=1), fluid.layers.concat(input=[x, y], axis=-1, name="joined")]


@layer_case(CASES, x=f32(2, 3), y=f32(2, 3, salt=1))
def concat_layer_with_computed_axis(fluid, x, y):
    return fluid.layers.concat([x, y], axis=fluid.layers.fill_constant([1], "int32", 1))


@layer_case(CASES, x=f32(2, 6))
def split_layer(fluid, x):
    halves = fluid.layers.split(x, 2)
    parts = fluid.layers.split(x, num_or_sections=[1, 2, 3], dim=1)
    rest = fluid.layers.split(x, [2, -1], dim=-1)
    return halves + parts + rest + fluid.layers.split(x, 2, dim=0)


@layer_case(CASES, x=f32(2, 6))
def split_layer_with_computed_sections(fluid, x):
    two = fluid.layers.fill_constant([1], "int32", 2)
    axis = fluid.layers.fill_constant([1], "int32", 1)
    return fluid.layers.split(x, [two, 4], dim=1) + fluid.layers.split(x, 3, dim=axis)


@layer_case(CASES, x=f32(2, 3), y=f32(2, 3, salt=1))
def stack_and_unstack_layers(fluid, x, y):
    stacked = fluid.layers.stack([x, y], axis=1)
    return [stacked, fluid.layers.stack(x)] + fluid.layers.unstack(stacked, axis=2)


@layer_case(CASES, x=f32(2, 1, 3))
def expand_layer(fluid, x):
    times = fluid.layers.fill_constant([1], "int32", 2)
    return [
        fluid.layers.expand(x, [1, 3, 2]),
        fluid.layers.expand(x, [times, 1, 1]),
        fluid.layers.expand(x, fluid.layers.assign(np.array([1, 2, 1], "int32"))),
    ]


@layer_case(CASES, x=f32(2, 1), y=f32(4, 3))
def expand_as_layer(fluid, x, y):
    # Real Fluid infers no shape for it, so the shape is given again.
    return fluid.layers.reshape(fluid.layers.expand_as(x, y), [2, 6])


@layer_case(CASES, x=f32(2, 3), y=f32(2, 3, salt=1))
def sums_layer(fluid, x, y):
    out = fluid.layers.create_tensor("float32")
    return [fluid.layers.sums([x, y]), fluid.layers.sums(input=[x, y, y], out=out)]
