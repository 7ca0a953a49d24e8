"""What batches of sequences cost on one core, compilations included: the model of text_lstm.py, every batch used once.

    taskset -c 0 python bench/sequence_steps.py [--steps 250] [--cache]

Runs on real Fluid and on refluid; ``--cache`` is Fluid's use_program_cache. ``REFLUID_CACHE_DIR=`` leaves out the steps
that earlier processes compiled. Prints CPU time: what other processes do disturbs it less than the clock.
"""

import argparse
import time

import numpy as np
import text_lstm

import paddle.fluid as fluid


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--cache", action="store_true")
    options = parser.parse_args()
    built = text_lstm.build(fluid)
    text_lstm.optimizer(fluid).minimize(built["loss"])
    exe = fluid.Executor(fluid.CPUPlace())
    feeder = fluid.DataFeeder(feed_list=built["feed"], place=fluid.CPUPlace())
    batches = text_lstm.data(options.steps, 1)

    begin = time.process_time()
    exe.run(fluid.default_startup_program())
    times = []
    for batch in batches:
        start = time.process_time()
        exe.run(feed=feeder.feed(batch), fetch_list=[built["loss"]], use_program_cache=options.cache)
        times.append(time.process_time() - start)
    total = time.process_time() - begin
    print("median step %.1f ms, all %d steps %.1f s" % (np.median(times) * 1000, options.steps, total))
    if hasattr(exe, "compilations"):
        print("%d compilations\n%s" % (exe.compilations, exe.buckets))


if __name__ == "__main__":
    main()
