"""Rewritten programs on two devices of this process follow their closed forms."""

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.contrib import mixed_precision
from refluid.places import cpu_places, replica_target
from refluid.transpiler.local_sgd import AverageParameters

RATE, STEPS = 0.1, 6
rng = np.random.default_rng(8)
X = rng.normal(size=(STEPS, 8, 3)).astype(np.float32)
Y = rng.normal(size=(STEPS, 8, 1)).astype(np.float32)
START = np.array([[0.5], [-1.0], [2.0]], np.float32)


@pytest.fixture(autouse=True)
def two_devices(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")


def linear(optimizer):
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
    begin = fluid.initializer.NumpyArrayInitializer(START)
    out = fluid.layers.fc(x, 1, bias_attr=False, param_attr=fluid.ParamAttr("w", initializer=begin))
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    optimizer.minimize(loss)
    return loss


def gradient(w, x, y):
    return 2 * x.T @ (x @ w - y) / len(x)


def start():
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor


def parameter():
    return np.array(fluid.global_scope().find_var("w").get_tensor())


def test_merged_gradients_of_two_devices_are_one_update():
    loss = linear(fluid.optimizer.GradientMergeOptimizer(fluid.optimizer.SGD(RATE), k_steps=2))
    executor = start()
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss_name=loss.name)
    w = START
    for step in range(0, STEPS, 2):
        merged = sum(gradient(w, X[i], Y[i]) for i in (step, step + 1)) / 2
        before = parameter()
        executor.run(compiled, feed={"x": X[step], "y": Y[step]}, fetch_list=[loss.name])
        np.testing.assert_array_equal(parameter(), before)
        executor.run(compiled, feed={"x": X[step + 1], "y": Y[step + 1]}, fetch_list=[loss.name])
        w = w - RATE * merged
        np.testing.assert_allclose(parameter(), w, rtol=1e-5, atol=1e-6)


def test_devices_train_on_their_own_between_averages():
    linear(fluid.optimizer.SGD(RATE))
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    AverageParameters(replicas=2, steps=3).apply(main, startup)
    executor = start()
    main.target = replica_target(cpu_places(2))
    w = np.stack([START, START])
    for step in range(STEPS):
        feed = {"x": X[step], "y": Y[step]}
        (found,) = executor.run(main, feed=feed, fetch_list=["w"], return_merged=False)
        shares = zip(w, X[step].reshape(2, 4, 3), Y[step].reshape(2, 4, 1), strict=True)
        w = np.stack([own - RATE * gradient(own, x, y) for own, x, y in shares])
        if step % 3 == 2:
            w = np.stack([w.mean(0)] * 2)
        np.testing.assert_allclose(found, w, rtol=1e-5, atol=1e-6)


def test_an_overflow_on_one_device_stops_the_update_of_all():
    optimizer = mixed_precision.decorate(
        fluid.optimizer.SGD(RATE),
        init_loss_scaling=8.0,
        decr_every_n_nan_or_inf=0,
        decr_ratio=0.5,
        use_dynamic_loss_scaling=True,
    )
    loss = linear(optimizer)
    executor = start()
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss_name=loss.name)
    fetched = [optimizer.get_loss_scaling().name]
    (scales,) = executor.run(compiled, feed={"x": X[0], "y": Y[0]}, fetch_list=fetched)
    after = START - RATE * gradient(START, X[0], Y[0])
    np.testing.assert_allclose(parameter(), after, atol=2e-3)  # products are rounded to 11 bits
    assert scales.tolist() == [8.0, 8.0]
    before, too_large = parameter(), X[1].copy()
    too_large[5] = 1e30  # of the second device
    (scales,) = executor.run(compiled, feed={"x": too_large, "y": Y[1]}, fetch_list=fetched)
    np.testing.assert_array_equal(parameter(), before)
    assert scales.tolist() == [4.0, 4.0]
