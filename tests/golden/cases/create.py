"""Fill, assign, range, eye, shape, cast, increment and their kind, and their layers."""

import numpy as np

from golden.case import Case, f32, f64, ints, layer_case


def _i32(*values):
    return np.array(values, "int32")


def _fp32(value):
    return np.array([value], "float32")


CASES = [
    Case("fill_constant", {}, attrs={"shape": [2, 3], "dtype": 5, "value": 1.5}),
    Case("fill_constant", {}, attrs={"shape": [1], "dtype": 3, "value": 0.0, "str_value": "9007199254740993"}),
    Case("fill_constant", {}, attrs={"shape": [2], "dtype": 2, "value": -3.7}),
    Case("fill_constant", {}, attrs={"shape": [2], "dtype": 6, "value": 0.1}),
    Case("fill_constant", {}, attrs={"shape": [2], "dtype": 6, "value": 0.1, "str_value": "0.1"}),
    Case("fill_constant", {}, attrs={"shape": [2, 1], "dtype": 0, "value": 1.0}),
    Case("fill_constant", {}, attrs={"shape": [2], "dtype": 4, "value": 0.5}),
    Case("fill_constant", {"ShapeTensor": _i32(2, 3)}, attrs={"dtype": 5, "value": 2.0}, name="shape-input"),
    Case(
        "fill_constant",
        {"ShapeTensorList": [_i32(2), _i32(3)]},
        attrs={"shape": [-1, 3], "dtype": 3, "value": 2.0},
        name="shape-tensors",
    ),
    Case("fill_constant", {"ValueTensor": _fp32(0.25)}, attrs={"shape": [2, 2], "dtype": 5}, name="value-input"),
    Case("fill_constant_batch_size_like", {"Input": f32(4, 3)}, attrs={"shape": [-1, 2], "dtype": 5, "value": 2.5}),
    Case(
        "fill_constant_batch_size_like",
        {"Input": f32(4, 3)},
        attrs={"shape": [2, -1, 5], "dtype": 3, "value": 7.0, "input_dim_idx": 1, "output_dim_idx": 1},
    ),
    Case(
        "fill_constant_batch_size_like",
        {"Input": ints(2, 3, high=4)},
        attrs={"shape": [9], "dtype": 6, "str_value": "0.1"},
    ),
    Case("fill_zeros_like", {"X": f32(2, 3)}),
    Case("fill_zeros_like", {"X": ints(2, high=5)}),
    Case("fill_zeros_like2", {"X": f32(2, 3)}, attrs={"dtype": 5}),
    Case("fill_any_like", {"X": f32(2, 3)}, attrs={"value": 1.5}),
    Case("fill_any_like", {"X": ints(4, high=5)}, attrs={"value": 3.0, "dtype": -1}),
    Case("fill_any_like", {"X": f64(4)}, attrs={"value": 3.0, "dtype": 2}),
    Case("fill", {}, attrs={"shape": [2, 2], "dtype": 5, "value": [0.5, 1.5, 2.5, 3.5]}),
    Case("fill", {}, attrs={"shape": [2], "dtype": 3, "value": [4.0, 5.0]}),
    Case("assign_value", {}, attrs={"shape": [2, 2], "dtype": 5, "fp32_values": [0.5, 1.5, 2.5, 3.5]}),
    Case("assign_value", {}, attrs={"shape": [3], "dtype": 2, "int32_values": [1, -2, 3]}),
    Case("assign_value", {}, attrs={"shape": [1], "dtype": 3, "int64_values": [9007199254740993]}),
    Case("assign_value", {}, attrs={"shape": [2], "dtype": 0, "bool_values": [1, 0]}),
    Case("range", {"Start": _fp32(0), "End": _fp32(1), "Step": _fp32(0.1)}),
    Case("range", {"Start": _i32(5), "End": _i32(0), "Step": _i32(-2)}),
    Case("range", {"Start": np.array([1]), "End": np.array([7]), "Step": np.array([3])}),
    Case("range", {"Start": np.array([0.5]), "End": np.array([2.1]), "Step": np.array([0.4])}),
    Case("linspace", {"Start": _fp32(-1), "Stop": _fp32(2), "Num": _i32(7)}),
    Case("linspace", {"Start": _fp32(3), "Stop": _fp32(2), "Num": _i32(1)}),
    Case("linspace", {"Start": np.array([2.0]), "Stop": np.array([-1.0]), "Num": _i32(4)}),
    Case("diag", {"Diagonal": f32(3)}),
    Case("diag", {"Diagonal": ints(2, high=9)}),
    Case("eye", {}, attrs={"num_rows": 3}),
    Case("eye", {}, attrs={"num_rows": 2, "num_columns": 4, "dtype": 3}),
    Case("eye", {}, attrs={"num_rows": 3, "num_columns": 2, "dtype": 6}),
    Case("tril_triu", {"X": f32(3, 4)}, attrs={"lower": True}, grads="X"),
    Case("tril_triu", {"X": f32(2, 3, 3)}, attrs={"lower": False, "diagonal": 1}, grads="X"),
    Case("tril_triu", {"X": ints(3, 3, high=9)}, attrs={"lower": True, "diagonal": -1}),
    Case("shape", {"Input": f32(2, 3, 4)}),
    Case("shape", {"Input": ints(5, high=3)}),
    Case("size", {"Input": f32(2, 3, 4)}),
    Case("is_empty", {"X": f32(2, 3)}),
    Case("cast", {"X": f32(2, 3)}, attrs={"in_dtype": 5, "out_dtype": 6}, grads="X"),
    Case("cast", {"X": f32(2, 3, low=-4, high=4)}, attrs={"in_dtype": 5, "out_dtype": 3}),
    Case("cast", {"X": ints(2, 3, high=3)}, attrs={"in_dtype": 3, "out_dtype": 0}),
    Case("cast", {"X": ints(2, 3, high=300)}, attrs={"in_dtype": 3, "out_dtype": 20}),
    Case("cast", {"X": ints(2, 3, low=-3, high=3, dtype="int32")}, attrs={"in_dtype": 2, "out_dtype": 5}),
    Case("assign", {"X": f32(2, 3)}, grads="X"),
    Case("assign", {"X": ints(4, high=3)}),
    Case("increment", {"X": _fp32(1.5)}, attrs={"step": 2.0}),
    Case("increment", {"X": np.array([3])}, attrs={"step": 1.0}),
    Case("increment", {"X": np.array([3])}, attrs={"step": -2.0}, inplace={"Out": "X"}),
]


@layer_case(CASES, grads=False)
def fill_constant_layer(fluid):
    layers = fluid.layers
    out = layers.create_tensor("int64")
    two = layers.fill_constant([1], "int32", 2)
    return [
        layers.fill_constant([2, 3], "float32", 1.5),
        layers.fill_constant(shape=[1], dtype="int64", value=3, out=out),
        layers.fill_constant([two, 3], "float32", -1),
        layers.fill_constant(layers.assign(np.array([3, 2], "int32")), "float64", 0.1),
        layers.fill_constant([2], "float32", layers.fill_constant([1], "float32", 7)),
        layers.fill_constant([2], "bool", True),
    ]


@layer_case(CASES, grads=False, x=f32(4, 3))
def fill_constant_batch_size_like_layer(fluid, x):
    return [
        fluid.layers.fill_constant_batch_size_like(x, [-1, 2], "float32", 0.5),
        fluid.layers.fill_constant_batch_size_like(
            input=x, shape=[2, -1], dtype="int64", value=3, input_dim_idx=0, output_dim_idx=1
        ),
    ]


@layer_case(CASES, grads=False, x=f32(4, 3))
def zeros_and_ones_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.zeros([2, 3], "float32"),
        layers.ones(shape=[2], dtype="int64"),
        layers.zeros_like(x),
        layers.ones_like(x),
        layers.zeros_like(x, out=layers.create_tensor("float32")),
    ]


@layer_case(CASES, grads=False, x=f32(1), n=np.array([4], "int64"))
def range_and_linspace_layers(fluid, x, n):
    layers = fluid.layers
    seven = layers.fill_constant([1], "int32", 7)
    return [
        layers.range(0, 10, 2, "int32"),
        layers.range(0.0, 1.0, 0.25, "float32"),
        layers.range(0, seven, 3, "int64"),
        layers.range(0, n, 1, "int64"),
        layers.linspace(0, 1, 5, "float32"),
        layers.linspace(x, 2.0, 3, "float32"),
    ]


@layer_case(CASES, grads=False, x=f32(3))
def diag_and_eye_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.diag(x),
        layers.diag(np.array([1, 2], "int32")),
        layers.eye(3),
        layers.eye(2, 3, dtype="int64"),
        layers.eye(2, batch_shape=[3]),
    ]


@layer_case(CASES, x=f32(3, 3))
def tril_and_triu_layers(fluid, x):
    return [fluid.layers.tril(x), fluid.layers.triu(x, diagonal=1)]


@layer_case(CASES, grads=False, x=f32(4, 3))
def shape_rank_and_size_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.shape(x),
        layers.rank(x),
        layers.size(x),
        layers.is_empty(x),
        layers.is_empty(x, cond=layers.create_tensor("bool")),
    ]


@layer_case(CASES, x=f32(4, 3, low=-5, high=5))
def cast_layer(fluid, x):
    return [fluid.layers.cast(x, "float64"), fluid.layers.cast(x=x, dtype="int32")]


@layer_case(CASES, x=f32(4, 3))
def assign_layer(fluid, x):
    return [fluid.layers.assign(x), fluid.layers.assign(x, fluid.layers.create_tensor("float32"))]


@layer_case(CASES, grads=False)
def assign_layer_of_arrays(fluid):
    arrays = [np.array([[1.5, 2.5]], "float32"), np.array([1, 2], "int32"), np.array([2**40]), np.array([True, False])]
    return [fluid.layers.assign(array) for array in arrays] + [
        fluid.layers.assign(arrays[1], fluid.layers.create_tensor("int32"))
    ]


@layer_case(CASES, grads=False, x=np.array([3.0], "float32"))
def increment_layer(fluid, x):
    counter = fluid.layers.fill_constant([1], "int64", 5)
    return [
        fluid.layers.increment(x, value=2.0, in_place=False),
        fluid.layers.increment(counter),
        fluid.layers.increment(fluid.layers.scale(x, 2.0), 1.5),
    ]


@layer_case(CASES, grads=False)
def step_counter_layer(fluid):
    counter = fluid.layers.autoincreased_step_counter(begin=5, step=2)
    again = fluid.layers.autoincreased_step_counter(begin=5, step=2)
    return [fluid.layers.assign(counter), fluid.layers.cast(again, "float32")]


@layer_case(CASES, x=f32(4, 3))
def create_parameter_layer(fluid, x):
    w = fluid.layers.create_parameter([3, 2], "float32")
    b = fluid.layers.create_parameter([2], "float32", name="offset", is_bias=True)
    named = fluid.layers.create_parameter(
        [2], "float32", attr=fluid.ParamAttr(name="gain"), default_initializer=fluid.initializer.Constant(2.0)
    )
    return (fluid.layers.mul(x, w) + b) * named


@layer_case(CASES, x=f32(4, 3), ops=False)
def create_global_var_layer(fluid, x):
    rate = fluid.layers.create_global_var([1], 0.5, "float32", persistable=True, name="rate")
    other = fluid.layers.create_global_var(shape=[3], value=2, dtype="float32", persistable=True)
    return [fluid.layers.elementwise_mul(x, rate), fluid.layers.elementwise_add(x, other)]


@layer_case(CASES, grads=False, ops=False)
def data_layers(fluid):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        found = [
            fluid.layers.data("a", [3, 4]),
            fluid.layers.data("b", [3, 4], append_batch_size=False),
            fluid.layers.data("c", [-1, 4], dtype="int64"),
            fluid.layers.data("d", [3], lod_level=1),
            fluid.layers.data("e", [None, 7]),
            fluid.layers.data("f", [2], stop_gradient=False),
            fluid.data("g", [None, 3]),
            fluid.data("h", [2, -1], dtype="int64", lod_level=2),
        ]
        facts = [
            (len(v.shape),)
            + tuple(v.shape)
            + (int(v.dtype), v.lod_level, v.stop_gradient, v.is_data, v.persistable, v.desc.need_check_feed())
            for v in found
        ]
    return fluid.layers.assign(np.array([int(fact) for some in facts for fact in some], "int32"))
