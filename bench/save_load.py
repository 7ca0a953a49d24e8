"""Saving and loading one large parameter, beside numpy.save and numpy.load: the same array, in one run.

    python bench/save_load.py [megabytes] [repeats]

numpy.save does not wait for the disk; refluid does (fsync), and writes beside the old file first. `in place` replaces a
file that is there, as each checkpoint after the first does. fluid.save writes what Python's pickle reads; arrays of this
size travel in it as raw bytes.
"""

import os
import random
import shutil
import statistics
import sys
import tempfile
import time

import numpy as np


def main(megabytes=256, repeats=7):
    import paddle.fluid as fluid

    rows = megabytes * (1 << 20) // 4096
    array = np.random.default_rng(0).standard_normal((rows, 1024), dtype=np.float32)
    main = fluid.Program()
    main.global_block().create_parameter(name="w", shape=[rows, 1024], dtype="float32")
    fluid.global_scope().var("w").get_tensor().set(array, fluid.CPUPlace())
    root = tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "."))
    paths = {name: os.path.join(root, name) for name in ("new", "there", "numpy.npy", "pickled/model")}

    def save_new():
        fluid.io.save_params(None, paths["new"], main)

    ways = {
        "numpy.save": lambda: np.save(paths["numpy.npy"], array),
        "save_params": save_new,
        "save_params in place": lambda: fluid.io.save_params(None, paths["there"], main),
        "numpy.load": lambda: np.load(paths["numpy.npy"]),
        "load_params": lambda: fluid.io.load_params(None, paths["there"], main),
        "fluid.save": lambda: fluid.save(main, paths["pickled/model"]),
        "fluid.load": lambda: fluid.load(main, paths["pickled/model"]),
    }
    seconds = {name: [] for name in ways}
    try:
        for way in ways.values():
            way()
        for _ in range(repeats):
            for name, way in random.sample(sorted(ways.items()), len(ways)):
                shutil.rmtree(paths["new"], ignore_errors=True)
                os.sync()  # or the fsync of one would pay for what another left in memory,
                time.sleep(0.3)  # or in the cache of the disk
                start = time.perf_counter()
                way()
                seconds[name].append(time.perf_counter() - start)
    finally:
        shutil.rmtree(root)
    print("%d MB; best of %d (median)" % (megabytes, repeats))
    for name, times in seconds.items():
        beside = seconds["numpy.load" if "load" in name else "numpy.save"]
        best, middle = min(times), statistics.median(times)
        ratios = min(beside) / best, statistics.median(beside) / middle
        print(
            "%-22s %6.0f (%4.0f) MB/s   %.2f (%.2f) of numpy" % ((name, megabytes / best, megabytes / middle) + ratios)
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
