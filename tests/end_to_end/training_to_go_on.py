"""Trains from one step to another and saves; for test_going_on.py.

python training_to_go_on.py OPTIMIZER FROM_FOLDER FIRST_STEP LAST_STEP TO_FOLDER
"""

import sys

import numpy as np

import paddle.fluid as fluid


def build(optimizer):
    x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
    hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 16, act="tanh"))
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    rate = fluid.layers.exponential_decay(0.05, decay_steps=3, decay_rate=0.7)
    made = {
        "adam": lambda: fluid.optimizer.Adam(rate, regularization=fluid.regularizer.L2Decay(1e-3)),
        "momentum": lambda: fluid.optimizer.Momentum(rate, 0.9, use_nesterov=True),
    }
    made[optimizer]().minimize(loss)
    return loss


def main(optimizer, load_from, first, last, save_to):
    fluid.default_startup_program().random_seed = 3
    loss = build(optimizer)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    if load_from != "none":
        fluid.io.load_persistables(executor, load_from)
    for step in range(int(first), int(last)):
        random = np.random.RandomState(step)
        feed = {"x": random.rand(8, 6).astype("float32"), "y": random.rand(8, 1).astype("float32")}
        executor.run(feed=feed, fetch_list=[loss])
    fluid.io.save_persistables(executor, save_to)


if __name__ == "__main__":
    main(*sys.argv[1:])
