"""An installation check that trains a tiny model."""

import numpy as np

from paddle.fluid import layers, optimizer, unique_name
from paddle.fluid.executor import Executor
from paddle.fluid.framework import Program, program_guard
from refluid.places import CPUPlace, CUDAPlace, is_compiled_with_cuda
from refluid.scope import Scope, scope_guard

__all__ = ["run_check"]


def run_check():
    """Trains a fully connected layer for a few steps and reports whether that worked."""
    place = CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()
    first, last = _train(place, steps=20)
    if not last < first:
        raise RuntimeError(f"the check ran but did not learn: the loss went from {first:.4f} to {last:.4f}")
    print(f"refluid works on {place}: the loss of a tiny model went from {first:.4f} to {last:.4f}")


def _train(place, steps):
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = 1
    with program_guard(main, startup), unique_name.guard(), scope_guard(Scope()):
        x = layers.data(name="x", shape=[2], dtype="float32")
        y = layers.data(name="y", shape=[1], dtype="float32")
        loss = layers.mean(layers.square_error_cost(input=layers.fc(input=x, size=1), label=y))
        optimizer.SGD(learning_rate=0.1).minimize(loss)
        exe = Executor(place)
        exe.run(startup)
        inputs = np.random.RandomState(0).uniform(-1, 1, (16, 2)).astype("float32")
        feed = {"x": inputs, "y": inputs.sum(axis=1, keepdims=True)}
        losses = [float(exe.run(main, feed=feed, fetch_list=[loss])[0][0]) for _ in range(steps)]
    return losses[0], losses[-1]
