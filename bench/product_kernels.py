"""What the kernels for matrix products and Adam bring: steps of a classifier with two hidden layers, with and without.

    python bench/product_kernels.py [--batch 64] [--rounds 40] [WIDTH ...]

Both variants take turns in one process; a round is 30 steps. Prints the medians and the median of the rounds' ratios.
"""

import argparse
import os
import time

import mnist_mlp
import numpy as np

import paddle.fluid as fluid


def build(width):
    image, label = fluid.layers.data("img", [784]), fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.fc(fluid.layers.fc(image, width, act="relu"), width, act="relu")
    prediction = fluid.layers.fc(hidden, 10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
    fluid.optimizer.Adam(0.001).minimize(loss)
    return loss


def round_of(width, batches, kernels):
    """A function that runs all batches once, and gives the time of a step in microseconds."""
    os.environ["REFLUID_KERNELS"] = kernels  # read when a step is compiled
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build(width)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)

    def run():
        start = time.perf_counter()
        for image, label in batches:
            exe.run(main, feed={"img": image, "label": label}, fetch_list=[loss], scope=scope)
        return (time.perf_counter() - start) / len(batches) * 1e6

    run()
    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("widths", type=int, nargs="*", default=[128, 200, 256, 512])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    batches = mnist_mlp.digits(30, 0, options.batch, (784,))
    for width in options.widths:
        without, with_kernel = round_of(width, batches, "0"), round_of(width, batches, "1")
        times = np.array([(without(), with_kernel()) for _ in range(options.rounds)])
        ratio = np.median(times[:, 0] / times[:, 1])
        print("width %d: XLA alone %.0f us, kernels %.0f us, x%.2f" % (width, *np.median(times, axis=0), ratio))


if __name__ == "__main__":
    main()
