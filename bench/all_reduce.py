"""Summing gradients over two CPU devices: 200 gradients of 10 KB against one of 2 MB.

    python bench/all_reduce.py [--devices 2] [--repeats 200]

Prints the time of a step that computes nothing but these sums, less that of a step that reads and writes the gradients
without adding them up. Small gradients travel as one array, so both should take about as long.
"""

import argparse
import os
import statistics
import time

import numpy as np


def step_seconds(fluid, count, elements, devices, repeats, reduces):
    """The time of an undisturbed step whose ``count`` gradients, which are in memory, have ``elements`` numbers each."""
    import jax

    from refluid.meshes import mesh_target

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        total = fluid.layers.reduce_sum(fluid.layers.data("x", [1]))
        block = main.global_block()
        for _ in range(count):
            gradient = fluid.layers.create_global_var([elements], 0.0, "float32", persistable=True)
            op = "c_allreduce_sum" if reduces else "scale"
            block.append_op(type=op, inputs={"X": [gradient]}, outputs={"Out": [gradient]})
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        # Not by CompiledProgram: it leaves it to a program that communicates by operators of its own where to run.
        main.target = mesh_target(jax.devices("cpu")[:devices])
        feed = {"x": np.ones((devices, 1), "float32")}
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            exe.run(main, feed=feed, fetch_list=[total])
            times.append(time.perf_counter() - began)
        return statistics.quantiles(times[len(times) // 4 :], n=10)[0]  # others on the machine disturb the rest


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
