"""Averages of parameters: what they keep, and what they take as a step counter."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid


def train_line():
    x = fluid.layers.data("x", [2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr("w"), bias_attr=False))
    fluid.optimizer.SGD(0.1).minimize(loss)


def test_a_model_average_saves_what_real_fluid_saves():
    train_line()
    fluid.optimizer.ModelAverage(0.15, min_average_window=2, max_average_window=3)
    saved = {v.name: tuple(v.shape) for v in fluid.default_main_program().list_vars() if v.persistable}
    numbers = {f"w_{name}_0": (1,) for name in ("num_accumulates", "num_updates", "old_num_accumulates")}
    sums = {f"w_sum_{i}_0": (2, 1) for i in (1, 2, 3)}
    assert saved == {"w": (2, 1), "learning_rate_0": (1,), **numbers, **sums}


def test_the_decay_of_an_average_grows_with_an_integer_step_counter():
    train_line()
    steps = fluid.layers.autoincreased_step_counter()
    ema = fluid.optimizer.ExponentialMovingAverage(0.9, thres_steps=steps)
    ema.update()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    weight = fluid.global_scope().find_var("w").get_tensor()
    average = 0.0
    for step in (1, 2, 3):
        exe.run(feed={"x": np.ones((1, 2), "float32")})
        decay = min(0.9, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * np.array(weight)
    with ema.apply(exe):
        applied = np.array(weight)
    assert applied == pytest.approx(average / (1 - decay**3), rel=1e-5)
