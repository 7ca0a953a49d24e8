"""Random ops: shapes and dtypes agree; what is not random agrees in value. Distributions are tested in tests/ops."""

import numpy as np

from golden.case import Case, f32, f64, layer_case


def drawn(op, attrs=None, inputs=None, outputs="Out", name="", **options):
    return Case(op, inputs or {}, outputs, attrs, name=name, check="shapes", **options)


CASES = [
    drawn("uniform_random", {"shape": [3, 4], "min": -2.0, "max": 3.0, "dtype": 5, "seed": 0}),
    drawn("uniform_random", {"shape": [5], "dtype": 6}, name="float64"),
    drawn("uniform_random", {"shape": [4, 4], "diag_num": 4, "diag_step": 4, "diag_val": 2.0}, name="diagonal"),
    drawn("uniform_random", {"dtype": 5}, {"ShapeTensor": np.array([2, 3], "int64")}, name="shape_tensor"),
    drawn(
        "uniform_random",
        {"shape": [-1, 3]},
        {"ShapeTensorList": [np.array([2], "int32"), np.array([3], "int32")]},
        name="shape_tensors",
    ),
    drawn("gaussian_random", {"shape": [3, 4], "mean": 1.0, "std": 2.0}),
    drawn("gaussian_random", {"shape": [2, 1, 3], "dtype": 6}, name="float64"),
    drawn(
        "gaussian_random",
        {"shape": [-1, 3]},
        {"ShapeTensorList": [np.array([2], "int32"), np.array([3], "int32")]},
        name="shape_tensors",
    ),
    drawn("gaussian_random", {}, {"ShapeTensor": np.array([4, 1], "int32")}, name="shape_tensor"),
    drawn("truncated_gaussian_random", {"shape": [3, 4], "mean": 1.0, "std": 2.0}),
    drawn("uniform_random_batch_size_like", {"shape": [-1, 3]}, {"Input": f32(4, 2)}),
    drawn(
        "uniform_random_batch_size_like",
        {"shape": [5, -1, 3], "input_dim_idx": 1, "output_dim_idx": 1, "dtype": 6},
        {"Input": f32(4, 2)},
        name="other_dims",
    ),
    drawn("gaussian_random_batch_size_like", {"shape": [-1, 3]}, {"Input": f32(4, 2)}),
    drawn(
        "gaussian_random_batch_size_like",
        {"shape": [5, -1], "input_dim_idx": 1, "output_dim_idx": 1},
        {"Input": f32(4, 2)},
        name="other_dims",
    ),
    drawn("randint", {"shape": [3, 4], "low": -2, "high": 5, "dtype": 3}),
    drawn("randint", {"shape": [3], "low": 0, "high": 2, "dtype": 2}, name="int32"),
    drawn("randint", {"low": 0, "high": 9, "dtype": 3}, {"ShapeTensor": np.array([2, 3], "int32")}, name="tensor"),
    drawn("randperm", {"n": 7, "dtype": 3}),
    drawn("randperm", {"n": 7, "dtype": 2}, name="int32"),
    drawn(
        "random_crop",
        {"shape": [3, 2, 2], "startup_seed": 1},
        {"X": f32(4, 3, 5, 5), "Seed": np.array([5], "int64")},
        "Out SeedOut",
        skip="SeedOut",
        reason="Fluid does not say its shape before it runs",
    ),
    drawn(
        "shuffle_batch",
        {},
        {"X": f32(4, 3), "Seed": np.array([5], "int64")},
        "Out ShuffleIdx SeedOut",
        skip="ShuffleIdx",
        reason="Fluid does not say its shape before it runs",
    ),
    drawn("seed", {"seed": 0}, name="fresh"),
    Case("seed", {}, attrs={"seed": 9}, name="given"),
    Case("gaussian_random", {}, attrs={"shape": [3, 2], "mean": 0.5, "std": 0.0}, name="nothing_to_draw"),
    Case("randint", {}, attrs={"shape": [3], "low": 4, "high": 5}, name="one_value"),
    Case(
        "random_crop",
        {"X": f64(2, 3, 4), "Seed": np.array([5], "int64")},
        "Out SeedOut",
        {"shape": [3, 4]},
        name="whole",
        skip="SeedOut",
        reason="the next seed is the generator's own",
    ),
]


@layer_case(CASES, grads=False, check="shapes", x=f32(4, 3))
def random_layers(fluid, x):
    layers = fluid.layers
    return [
        layers.uniform_random([2, 3]),
        layers.uniform_random([2, 3], "float32", 0.0, 2.0, 7),
        layers.gaussian_random([2, 3], 1.0, 2.0, 0, "float32"),
        layers.uniform_random_batch_size_like(x, [-1, 5], "float32", 0, 0, -1.0, 1.0, 0),
        layers.uniform_random_batch_size_like(x, [2, -1], input_dim_idx=1, output_dim_idx=1),
        layers.gaussian_random_batch_size_like(x, [-1, 5], 0, 0, 1.0, 2.0, 0, "float32"),
        layers.gaussian_random_batch_size_like(x, [2, -1], input_dim_idx=1, output_dim_idx=1),
    ]


@layer_case(CASES, grads=False, check="shapes", x=f32(2, 3, 6, 6))
def random_crop_layer(fluid, x):
    return [fluid.layers.random_crop(x, [3, 4, 4], seed=1), fluid.layers.random_crop(x, [2, 2])]


@layer_case(CASES, grads=False, check="shapes")
def random_shapes_from_variables(fluid):
    layers = fluid.layers
    size = layers.fill_constant([1], "int64", 3)
    shape = layers.assign(np.array([2, 5], "int32"))
    return [
        layers.uniform_random([2, size]),
        layers.gaussian_random([2, size]),
        layers.uniform_random(shape),
        layers.gaussian_random(shape),
    ]
