"""Training in mixed precision: numbers, dtypes, scaled losses."""

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.contrib import mixed_precision
from refluid.ir import VarType
from refluid.ops.core.registry import lookup
from refluid.ops.core.values import SelectedRows
from refluid.transpiler.data_parallel import ReduceGradients

rng = np.random.default_rng(1)
X = rng.normal(size=(16, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-1.0], [0.5], [0.0]]) > 0).astype(np.int64)


def build(dtype="float16", dynamic=True, optimizer=None, **options):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1], dtype="int64")
    logits = fluid.layers.fc(fluid.layers.fc(x, 8, act="relu"), 2)
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, y))
    fluid.default_startup_program().random_seed = 3
    optimizer = optimizer or fluid.optimizer.Adam(0.05)
    if dtype is None:
        optimizer.minimize(loss)
        return loss, None
    options = {"init_loss_scaling": 128.0, **options}
    wrapped = mixed_precision.decorate(optimizer, use_dynamic_loss_scaling=dynamic, dtype=dtype, **options)
    wrapped.minimize(loss)
    return loss, wrapped


def train(loss, steps=10):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return np.array([executor.run(feed={"x": X, "y": Y}, fetch_list=[loss])[0] for _ in range(steps)])


@pytest.mark.parametrize(("dtype", "dynamic", "tolerance"), [("float16", True, 3e-3), ("bfloat16", False, 3e-2)])
def test_a_model_trains_to_nearly_the_same_loss(dtype, dynamic, tolerance):
    loss, _ = build(dtype, dynamic)
    found = train(loss)
    half = VarType.FP16 if dtype == "float16" else VarType.BF16
    block = fluid.default_main_program().global_block()
    assert block.var("fc_0.tmp_0").dtype == half
    assert all(param.dtype == VarType.FP32 for param in block.all_parameters())
    held = [np.array(fluid.global_scope().find_var(param.name).get_tensor()) for param in block.all_parameters()]
    assert {value.dtype.name for value in held} == {"float32"}
    fresh = fluid.program_guard(fluid.Program(), fluid.Program())
    with fresh, fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        expected = train(build(None)[0])
    assert expected[-1] < 0.8 * expected[0]
    np.testing.assert_allclose(found, expected, atol=tolerance)


def test_an_overflow_leaves_parameters_and_halves_the_scale():
    _, wrapped = build(optimizer=fluid.optimizer.SGD(0.1), decr_every_n_nan_or_inf=0, decr_ratio=0.5)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fetched = [wrapped.get_loss_scaling(), "fc_0.w_0"]
    _, before = executor.run(feed={"x": X, "y": Y}, fetch_list=fetched)
    scale, after = executor.run(feed={"x": 1e30 * X, "y": Y}, fetch_list=fetched)  # infinite in 16 bits
    assert scale == [64.0]
    np.testing.assert_array_equal(after, before)
    _, again = executor.run(feed={"x": X, "y": Y}, fetch_list=fetched)
    assert (again != before).any()


def test_the_scaled_loss_is_what_backward_starts_from():
    loss, wrapped = build(dynamic=False)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    plain, scaled = executor.run(feed={"x": X, "y": Y}, fetch_list=[loss, wrapped.get_scaled_loss()])
    np.testing.assert_allclose(scaled, 128 * plain)
    copy = ReduceGradients(4, loss.name).apply(fluid.default_main_program())
    (start,) = [op for op in copy.global_block().ops if op.role == 257]
    assert start.output_arg_names == [wrapped.get_scaled_loss().name + "@GRAD"] and start.attr("value") == 0.25


def test_sparse_gradients_are_unscaled():
    rows = SelectedRows(np.array([1]), np.array([[4.0, np.inf]], np.float32), 3)
    op = lookup("check_finite_and_unscale")
    found = op.call({"X": [rows, np.ones(2, np.float32)], "Scale": [np.float32([2.0])]}, {})
    assert found["FoundInfinite"][0].tolist() == [True]
    np.testing.assert_array_equal(found["Out"][0].values, [[2.0, np.inf]])
    kept = lookup("update_loss_scaling").call(
        {
            "X": found["Out"],
            "FoundInfinite": found["FoundInfinite"],
            "PrevLossScaling": [np.float32([2.0])],
            "InGoodSteps": [np.int32([5])],
            "InBadSteps": [np.int32([0])],
        },
        {},
    )
    np.testing.assert_array_equal(kept["Out"][0].values, [[0.0, 0.0]])
    assert (kept["OutGoodSteps"][0].tolist(), kept["OutBadSteps"][0].tolist()) == ([0], [1])


def test_what_loops_read_stays_in_32_bits():
    x = fluid.layers.data("x", [4])
    hidden = fluid.layers.fc(x, 4)
    zero, limit = (fluid.layers.fill_constant([1], "int64", value) for value in (0, 2))
    total = fluid.layers.fill_constant([1], "float32", 0.0)
    condition = fluid.layers.less_than(zero, limit)
    loop = fluid.layers.While(condition)
    with loop.block():
        fluid.layers.assign(total + fluid.layers.reduce_sum(hidden), total)
        fluid.layers.increment(zero)
        fluid.layers.less_than(zero, limit, cond=condition)
    mixed_precision.decorate(fluid.optimizer.SGD(0.1)).minimize(fluid.layers.mean(hidden))
    assert fluid.default_main_program().global_block().var(hidden.name).dtype == VarType.FP32
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    executor.run(feed={"x": X}, fetch_list=[total])


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="dtype must be one of float16, bfloat16, not 'int8'"):
        mixed_precision.decorate(fluid.optimizer.SGD(0.1), dtype="int8")
    with pytest.raises(RuntimeError, match="call minimize or backward first"):
        mixed_precision.decorate(fluid.optimizer.SGD(0.1)).get_loss_scaling()
    with pytest.raises(ValueError, match="mul cannot be in both custom_white_list and custom_black_list"):
        mixed_precision.AutoMixedPrecisionLists({"mul"}, {"mul"})
