"""Operators and slices of variables: which ops they append, and what those give."""

import numpy as np

from golden.case import f32, ints, layer_case

CASES = []


@layer_case(CASES, x=f32(2, 3, low=0.2))
def a_variable_and_a_number(fluid, x):
    return [x + 1, x + 1.5, 1 + x, x - 2, 2 - x, x * 3, 0.5 * x, x / 4, 3 / x, x**2, 2**x, -x]


@layer_case(CASES, x=f32(2, 3, low=0.2), y=f32(2, 3, low=0.2, salt=1))
def two_variables(fluid, x, y):
    return [x + y, x - y, x * y, x / y, x**y]


@layer_case(CASES, x=f32(2, 3, low=0.2), row=f32(3, low=0.2))
def operators_broadcast(fluid, x, row):
    return [x + row, x - row, x * row, x / row]


@layer_case(CASES, grads=False, x=f32(2, 3), y=f32(2, 3, salt=1))
def comparison_operators(fluid, x, y):
    return [x < y, x <= y, x > y, x >= y, x == y, x != y, x < 0, x <= 0.5, x > 0, x >= 0, 0 < x, x == 0, x != 0]


@layer_case(CASES, grads=False, x=ints(2, 3, low=-9, high=9), y=ints(2, 3, low=1, high=5))
def integer_operators(fluid, x, y):
    return [x + 1, 1 - x, x * 2, x / 2, 20 / y, x // y, x // 2, x % y, x % 3, x**2, x > 0, x == 2, x + 2.0, -x]


@layer_case(CASES, grads=False, x=ints(2, 3, high=9), y=f32(2, 3))
def operators_cast_the_right_side(fluid, x, y):
    return [y + x, x + y, y > x, y * x]


@layer_case(CASES, grads=False, x=f32(2, 3, high=9))
def astype(fluid, x):
    return [x.astype("int64"), x.astype("float64"), x.astype("bool"), x.astype(np.int32)]


@layer_case(CASES, x=f32(2, 3))
def operators_and_numpy_numbers(fluid, x):
    return [x * np.float32(3), x * np.float64(2), x + np.int64(1)]


@layer_case(CASES, x=f32(4, 6, 3))
def integer_indices(fluid, x):
    return [x[0], x[-1], x[0, 1], x[2, 3, 1], x[:, 1], x[0, :, 1], x[-2, -1]]


@layer_case(CASES, x=f32(4, 6, 3))
def slices(fluid, x):
    return [x[0:2], x[:, 1:], x[-2:], x[:-1], x[:, :, 1:3], x[1:3, 2:5], x[-3:-1, :2, 1], x[:100]]


@layer_case(CASES, x=f32(4, 6, 3))
def slices_with_steps(fluid, x):
    return [x[::-1], x[:, ::-1], x[3:1:-1], x[0:4:2]]


@layer_case(CASES, x=f32(4, 6, 3))
def variables_as_indices(fluid, x):
    one, two = (fluid.layers.fill_constant([1], "int32", value) for value in (1, 2))
    return [x[one], x[:, two], x[one, two]]


@layer_case(CASES, grads=False, x=f32(4, 6, 3))
def a_step_and_an_integer(fluid, x):
    return [x[1:4:2, 0], x[0, 1:5:3]]


@layer_case(CASES, grads=False, x=f32(4, 6, 3))
def variables_as_bounds(fluid, x):
    one, three = (fluid.layers.fill_constant([1], "int32", value) for value in (1, 3))
    return [x[one:], x[0:one], x[one:three], x[0, one:3]]
