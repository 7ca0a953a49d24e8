"""affine_grid and grid_sampler."""

import numpy as np

from golden.case import Case, f32, f64, layer_case

IDENTITY = np.tile(np.array([[1, 0, 0], [0, 1, 0]], "float32"), (2, 1, 1))

CASES = [
    Case("affine_grid", {"Theta": f32(2, 2, 3)}, "Output", {"output_shape": [2, 3, 4, 5]}, "Theta"),
    Case("affine_grid", {"Theta": IDENTITY}, "Output", {"output_shape": [2, 1, 2, 3]}, "Theta", name="identity"),
    Case("affine_grid", {"Theta": f64(1, 2, 3)}, "Output", {"output_shape": [1, 1, 3, 3]}, name="float64"),
    Case(
        "affine_grid",
        {"Theta": f32(2, 2, 3), "OutputShape": np.array([2, 3, 4, 5], "int32")},
        "Output",
        {},
        "Theta",
        name="shape_tensor",
    ),
    Case("grid_sampler", {"X": f32(2, 3, 4, 5), "Grid": f32(2, 4, 5, 2) * 0.9}, "Output", grads="X Grid"),
    Case(
        "grid_sampler",
        {"X": f32(2, 3, 4, 5), "Grid": f32(2, 4, 5, 2, salt=1) * 1.7},
        "Output",
        grads="X Grid",
        name="outside",
    ),
    Case("grid_sampler", {"X": f32(1, 2, 3, 3), "Grid": f32(1, 3, 3, 2) * 4}, "Output", grads="X Grid", name="far"),
    Case("grid_sampler", {"X": f64(1, 2, 3, 3), "Grid": f64(1, 3, 3, 2)}, "Output", name="float64"),
]


@layer_case(CASES, theta=f32(2, 2, 3), x=f32(2, 3, 4, 5))
def spatial_transformer(fluid, theta, x):
    grid = fluid.layers.affine_grid(theta, [2, 3, 4, 5])
    return fluid.layers.grid_sampler(x, grid)


@layer_case(CASES, theta=f32(2, 2, 3))
def affine_grid_of_variable_shape(fluid, theta):
    shape = fluid.layers.assign(np.array([2, 3, 2, 4], "int32"))
    return [fluid.layers.affine_grid(theta, shape), fluid.layers.affine_grid(theta, (2, 1, 3, 3), name="grid")]
