"""What data parallelism on one device costs: LeNet by plain exe.run, and by with_data_parallel with one place.

    python bench/one_device.py [--batch 64] [--turns 20]

The two take turns in short stretches in one process, and the best stretch of each counts. Prints milliseconds per step of
both and their ratio; and the same for a linear regression, where the step itself takes microseconds.
"""

import argparse
import time

import numpy as np

import paddle.fluid as fluid


def lenet(batch):
    image, label = fluid.layers.data("image", [1, 28, 28]), fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.pool2d(fluid.layers.conv2d(image, 20, 5, act="relu"), 2, pool_stride=2)
    hidden = fluid.layers.pool2d(fluid.layers.conv2d(hidden, 50, 5, act="relu"), 2, pool_stride=2)
    predicted = fluid.layers.fc(hidden, 10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(predicted, label))
    random = np.random.RandomState(0)
    feed = {"image": random.rand(batch, 1, 28, 28).astype("float32"), "label": random.randint(0, 10, (batch, 1))}
    return loss, feed


def regression(batch):
    x, y = fluid.layers.data("x", [13]), fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    return loss, {"x": np.ones((batch, 13), "float32"), "y": np.ones((batch, 1), "float32")}


def step_of(model, batch, parallel):
    """A function that runs one training step."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, feed = model(batch)
        fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    program = main
    if parallel:
        program = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=[fluid.CPUPlace()])
    return lambda: exe.run(program, feed=feed, fetch_list=[loss.name], scope=scope)


def measure(model, batch, turns, stretch):
    steps = {parallel: step_of(model, batch, parallel) for parallel in (False, True)}
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(turns):
        for parallel, step in steps.items():
            step()
            began = time.perf_counter()
            for _ in range(stretch):
                step()
            best[parallel] = min(best[parallel], (time.perf_counter() - began) / stretch)
    plain, parallel = 1e3 * best[False], 1e3 * best[True]
    print(
        f"{model.__name__:<12} exe.run {plain:8.3f} ms, data parallel {parallel:8.3f} ms, ratio {parallel / plain:.3f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    measure(lenet, options.batch, options.turns, stretch=10)
    measure(regression, options.batch, options.turns, stretch=500)


if __name__ == "__main__":
    main()
