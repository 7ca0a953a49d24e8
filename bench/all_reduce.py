"""Summing gradients over two CPU devices: 200 gradients of 10 KB against one of 2 MB.

    python bench/all_reduce.py [--devices 2] [--repeats 200]

Prints the time of a step that computes nothing but these sums, without what a step without sums takes. Small gradients
travel as one array, so both should take about as long.
"""

import argparse
import os
import statistics
import time

import numpy as np


def step_seconds(fluid, count, elements, devices, repeats, reduces):
    """The median time of a step whose ``count`` gradients have ``elements`` numbers each."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        x = fluid.layers.data("x", [1])
        sums = []
        for i in range(count):
            rows = fluid.layers.expand(fluid.layers.scale(x, 1.0 + i), [1, elements])
            sums.append(fluid.layers.collective._c_allreduce(rows, reduce_type="sum") if reduces else rows)
        total = fluid.layers.reduce_sum(sums[0])
        for each in sums[1:]:
            total = total + fluid.layers.reduce_sum(each)
        exe = fluid.Executor(fluid.CPUPlace())
        program = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(devices))
        feed = {"x": np.ones((devices, 1), "float32")}
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            exe.run(program, feed=feed, fetch_list=[total])
            times.append(time.perf_counter() - began)
        return statistics.median(times[len(times) // 4 :])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(options.devices))
    import paddle.fluid as fluid

    times = {}
    for name, count, elements in (("200 x 10 KB", 200, 2560), ("1 x 2 MB", 1, 512_000)):
        with_sums, without = (
            step_seconds(fluid, count, elements, options.devices, options.repeats, reduces) for reduces in (True, False)
        )
        times[name] = with_sums - without
        print(f"{name:12} {1e6 * with_sums:8.0f} us a step, {1e6 * times[name]:8.0f} us of it for sums")
    few, many = times["1 x 2 MB"], times["200 x 10 KB"]
    print(f"{many / few:.2f} times as long for many gradients as for one")


if __name__ == "__main__":
    main()
