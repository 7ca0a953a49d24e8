"""Initializers add the op that real Fluid adds, with the same numbers, and the op gives the promised values."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.initializer import (
    MSRA,
    Bilinear,
    Constant,
    Normal,
    NumpyArrayInitializer,
    TruncatedNormal,
    Uniform,
    Xavier,
    force_init_on_cpu,
    init_on_cpu,
)


def initialized(shape, initializer, dtype="float32"):
    """The op that fills a new parameter, and the values it gives."""
    attr = fluid.ParamAttr(initializer=initializer)
    parameter = fluid.layers.create_parameter(shape, dtype, attr=attr)
    startup = fluid.default_startup_program()
    (op,) = (op for op in startup.global_block().ops if parameter.name in op.output_arg_names)
    fluid.Executor(fluid.CPUPlace()).run(startup)
    return op, np.array(fluid.global_scope().find_var(parameter.name).get_tensor())


# What real Fluid 1.8.5 writes into the op: type, limit or standard deviation.
@pytest.mark.parametrize(
    ("shape", "initializer", "type", "number"),
    [
        ([3, 4], Xavier(), "uniform_random", 0.9258201122283936),
        ([8, 3, 5, 5], Xavier(), "uniform_random", 0.14770978689193726),
        ([8, 3, 5, 5], Xavier(uniform=False), "gaussian_random", 0.08528028428554535),
        ([7], Xavier(), "uniform_random", 0.6546536684036255),
        ([6, 2, 3], Xavier(), "uniform_random", 0.5),
        ([3, 4], Xavier(fan_in=9, fan_out=1), "uniform_random", 0.7745966911315918),
        ([3, 4], MSRA(), "uniform_random", 1.4142135381698608),
        ([8, 3, 5, 5], MSRA(uniform=False), "gaussian_random", 0.1632993221282959),
        ([3, 4], MSRA(uniform=False, fan_in=2), "gaussian_random", 1.0),
        ([6, 2, 3, 2, 2], MSRA(), "uniform_random", 0.5),
    ],
)
def test_fans_follow_the_shape(shape, initializer, type, number):
    op, values = initialized(shape, initializer)
    assert op.type == type
    assert op.attr("seed") == 0
    if type == "uniform_random":
        assert (op.attr("min"), op.attr("max")) == (pytest.approx(-number), pytest.approx(number))
        assert np.abs(values).max() <= number
    else:
        assert (op.attr("mean"), op.attr("std")) == (0.0, pytest.approx(number))


def test_distributions_have_their_moments():
    _, uniform = initialized([200, 100], Uniform(-1.0, 3.0))
    _, normal = initialized([200, 100], Normal(2.0, 0.5))
    _, truncated = initialized([200, 100], TruncatedNormal(2.0, 0.5))
    assert uniform.min() >= -1.0 and uniform.max() < 3.0
    assert uniform.mean() == pytest.approx(1.0, abs=0.05)
    assert (normal.mean(), normal.std()) == (pytest.approx(2.0, abs=0.02), pytest.approx(0.5, abs=0.02))
    assert truncated.min() >= 1.0 and truncated.max() <= 3.0
    assert truncated.std() < normal.std()


def test_xavier_fills_its_interval():
    _, values = initialized([100, 200], Xavier())
    limit = (6 / 300) ** 0.5
    assert values.std() == pytest.approx(limit / 3**0.5, rel=0.03)


def test_uniform_can_set_a_diagonal():
    op, values = initialized([4, 4], Uniform(diag_num=4, diag_step=4, diag_val=2.5))
    assert (op.attr("diag_num"), op.attr("diag_step"), op.attr("diag_val")) == (4, 4, 2.5)
    np.testing.assert_array_equal(np.diag(values), np.full(4, 2.5))


def test_constant_keeps_the_dtype():
    _, values = initialized([2, 3], Constant(3), "int64")
    np.testing.assert_array_equal(values, np.full((2, 3), 3))
    assert values.dtype == np.int64


def test_arrays_come_out_as_they_went_in():
    floats, integers = np.array([[1, 2], [3, 4.5]], "float32"), np.array([[7], [-1]], "int32")
    np.testing.assert_array_equal(initialized([2, 2], NumpyArrayInitializer(floats))[1], floats)
    op, values = initialized([2, 1], NumpyArrayInitializer(integers), "int32")
    np.testing.assert_array_equal(values, integers)
    assert op.attr("int32_values") == [7, -1]


def test_bilinear_filters_interpolate():
    _, values = initialized([2, 1, 4, 4], Bilinear())
    line = np.array([0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(values, np.broadcast_to(np.outer(line, line), (2, 1, 4, 4)))
    _, odd = initialized([1, 1, 3, 3], Bilinear())
    np.testing.assert_allclose(odd[0, 0, 1], [0.1875, 0.5625, 0.5625])


def test_seeds_are_the_users_or_the_programs():
    fluid.default_startup_program().random_seed = 9
    assert initialized([2, 2], Xavier())[0].attr("seed") == 0
    assert initialized([2, 2], Xavier(seed=4))[0].attr("seed") == 4


def test_parameters_differ_and_a_program_seed_repeats_them():
    def build_and_run():
        fluid.default_startup_program().random_seed = 9
        with fluid.unique_name.guard():
            return [initialized([4, 4], Xavier())[1] for _ in range(2)]

    first, again = [], []
    for values in (first, again):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
            values += build_and_run()
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, again)


def test_init_on_cpu_marks_constants():
    assert not force_init_on_cpu()
    with init_on_cpu():
        assert force_init_on_cpu()
        assert initialized([2], Constant(1.0))[0].attr("force_cpu")
    assert not force_init_on_cpu()
    assert not initialized([2], Constant(1.0))[0].attr("force_cpu")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Uniform(2.0, 1.0), ValueError, "high must not be less than low"),
        (lambda: Uniform(diag_num=3), ValueError, "diag_num and diag_step must both"),
        (lambda: Constant(None), ValueError, "value must be a number"),
        (lambda: Normal(seed=None), ValueError, "seed must be an integer"),
        (lambda: NumpyArrayInitializer([1, 2]), TypeError, "expects a NumPy array"),
        (lambda: initialized([2], Normal(), "int64"), TypeError, "floating-point"),
        (lambda: initialized([2, 2, 3, 2], Bilinear()), ValueError, "with equal height and width"),
        (lambda: initialized([2], NumpyArrayInitializer(np.zeros(2)), "float64"), TypeError, "has dtype FP64"),
    ],
)
def test_wrong_arguments_are_told_early(make, error, words):
    with pytest.raises(error, match=words):
        make()
