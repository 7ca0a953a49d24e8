"""Layers refuse what real Fluid refuses, when they are called: arrays for variables, and dtypes without a kernel."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid

layers = fluid.layers
ARRAY = np.ones((2, 3), "float32")
PAIRWISE = [f"elementwise_{name}" for name in "add sub mul div max min pow mod floordiv".split()]


def variable(dtype="float32", name="x"):
    return layers.data(name, [2, 3], append_batch_size=False, dtype=dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool"])
@pytest.mark.parametrize("layer", PAIRWISE)
def test_pairs_are_numbers(layer, dtype):
    with pytest.raises(TypeError, match=f"{layer}: x must be .*, not {dtype}"):
        getattr(layers, layer)(variable(dtype), variable(dtype, "y"))


@pytest.mark.parametrize("layer", PAIRWISE)
def test_pairs_are_variables(layer):
    with pytest.raises(TypeError, match="must be Variable"):
        getattr(layers, layer)(variable(), ARRAY)


REFUSED = {
    "cast of int16": lambda: layers.cast(variable("int16"), "int64"),
    "cast to int16": lambda: layers.cast(variable(), "int16"),
    "concat of int8": lambda: layers.concat([variable("int8")]),
    "concat of bool": lambda: layers.concat([variable("bool")]),
    "reduce_sum of int8": lambda: layers.reduce_sum(variable("int8")),
    "reduce_sum of bool": lambda: layers.reduce_sum(variable("bool")),
    "reduce_mean of bool": lambda: layers.reduce_mean(variable("bool")),
    "reduce_all of float32": lambda: layers.reduce_all(variable()),
    "reduce_any of int64": lambda: layers.reduce_any(variable("int64")),
    "expand of uint8": lambda: layers.expand(variable("uint8"), [1, 2]),
    "reshape of bool": lambda: layers.reshape(variable("bool"), [6]),
    "reshape of uint8": lambda: layers.reshape(variable("uint8"), [6]),
    "zeros of int8": lambda: layers.zeros([2], "int8"),
    "ones of uint8": lambda: layers.ones([2], "uint8"),
    "fill_constant of int16": lambda: layers.fill_constant([2], "int16", 1),
    "zeros_like int8": lambda: layers.zeros_like(variable("int8")),
    "ones_like uint8": lambda: layers.ones_like(variable("uint8")),
    "uniform_random of int64": lambda: layers.uniform_random([2], "int64"),
    "gaussian_random of int32": lambda: layers.gaussian_random([2], dtype="int32"),
    "uniform_random_batch_size_like of int64": lambda: layers.uniform_random_batch_size_like(variable(), [2], "int64"),
    "an array": lambda: layers.reshape(ARRAY, [6]),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_other_types_are_refused(call):
    with pytest.raises(TypeError, match="must be"):
        call()


ACCEPTED = {
    "cast of uint8": lambda: layers.cast(variable("uint8"), "float16"),
    "cast to int8": lambda: layers.cast(variable(), "int8"),
    "expand of bool": lambda: layers.expand(variable("bool"), [1, 2]),
    "reduce_max of int8": lambda: layers.reduce_max(variable("int8")),
    "reduce_sum of float16": lambda: layers.reduce_sum(variable("float16")),
    "zeros of bool": lambda: layers.zeros([2], "bool"),
    "numbers of NumPy": lambda: layers.fc(variable(), np.int64(2)),
}


@pytest.mark.parametrize("call", ACCEPTED.values(), ids=ACCEPTED)
def test_what_fluid_takes_is_taken(call):
    assert call().shape


@pytest.mark.parametrize(
    "call",
    [lambda x: layers.fc(x, 2.0), lambda x: layers.embedding(layers.cast(x, "int64"), [4.0, 2])],
    ids=["fc", "embedding"],
)
def test_sizes_of_parameters_are_integers(call):
    with pytest.raises(TypeError, match="of a parameter must be an integer"):
        call(layers.data("ids", [1]))
