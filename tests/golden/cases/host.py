"""Print and py_func layers: values and gradients. What they print is in tests/ops/host/test_python_calls.py."""

import numpy as np

from golden.case import Lod, f32, layer_case

CASES = []


def _twice(x):
    return np.array(x) * 2


def _twice_backward(x, y, dy):
    return np.array(dy) * 2


def _sum_and_difference(x, y):
    return np.array(x) + np.array(y), np.array(x) - np.array(y)


def _sum_and_difference_backward(dsum, ddifference):
    return np.array(dsum) + np.array(ddifference), np.array(dsum) - np.array(ddifference)


@layer_case(CASES, x=f32(2, 3))
def print_layer(fluid, x):
    return fluid.layers.scale(fluid.layers.Print(fluid.layers.scale(x, 2.0), message="x", first_n=1), 3.0)


@layer_case(CASES, x=f32(2, 3))
def print_layer_forward(fluid, x):
    return fluid.layers.Print(x, print_phase="forward", summarize=2, print_tensor_name=False)


def _like(fluid, x):
    return (
        fluid.default_main_program()
        .current_block()
        .create_var(name=fluid.unique_name.generate("made"), shape=x.shape, dtype=x.dtype)
    )


@layer_case(CASES, x=f32(2, 3))
def py_func_layer(fluid, x):
    y = fluid.layers.py_func(
        func=_twice, x=fluid.layers.scale(x, 3.0), out=_like(fluid, x), backward_func=_twice_backward
    )
    return fluid.layers.scale(y, 0.5)


@layer_case(CASES, x=f32(2, 3), y=f32(2, 3, salt=1))
def py_func_layer_with_skipped_variables(fluid, x, y):
    outs = [_like(fluid, x), _like(fluid, x)]
    fluid.layers.py_func(
        _sum_and_difference, [x, y], outs, _sum_and_difference_backward, skip_vars_in_backward_input=[x, y] + outs
    )
    return outs


@layer_case(CASES, x=f32(2, 3), grads=False)
def py_func_layer_without_gradient(fluid, x):
    return fluid.layers.py_func(_twice, x, _like(fluid, x))


@layer_case(CASES, x=Lod(f32(6, 2), [[2, 3, 1]]))
def print_sequences(fluid, x):
    shown = fluid.layers.Print(x)
    return [shown, fluid.layers.sequence_pool(shown, "max")]
